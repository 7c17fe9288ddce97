"""The REST API of serving endpoints. Views read, call one service, and answer."""

from __future__ import annotations

import time
from typing import Any, cast

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.accounts.models import User
from portal.endpoints import services
from portal.endpoints.api import parsing, representation, texts
from portal.endpoints.api.query_openapi import openapi
from portal.endpoints.models import Endpoint, ServedEntity
from portal.endpoints.reading import with_everything
from portal.endpoints.routes import latest_decision
from portal.logs.services import service_log_text
from portal.registry import services as registry
from portal.rest import InvalidParameterValue, ResourceDoesNotExist
from portal.workspace import public_url
from serving.permissions import Action

MAX_EVENTS = 500
LOG_LINES = 2000


def _user(request: Request) -> User:
    return cast(User, request.user)


def _body(request: Request) -> dict[str, Any]:
    return cast(dict[str, Any], request.data)  # the parser takes objects only


def _find(request: Request, name: str, action: Action) -> Endpoint:
    """The endpoint, for a caller who may do `action` on it."""
    user = _user(request)
    endpoint = services.get_endpoint(user, name)
    services.require(user, endpoint, action)
    return endpoint


def _detailed(request: Request, endpoint: Endpoint) -> Response:
    fresh = with_everything(Endpoint.objects.filter(pk=endpoint.pk)).get()
    return Response(representation.detailed(fresh, _user(request), request))


class EndpointsView(APIView):
    def get(self, request: Request) -> Response:
        found = with_everything(Endpoint.objects.visible_to(_user(request)))
        return Response({"endpoints": [representation.summary(endpoint) for endpoint in found]})

    def post(self, request: Request) -> Response:
        wanted = parsing.read_endpoint(_body(request), services.servable_models(_user(request)))
        return _detailed(request, services.create_endpoint(_user(request), wanted))


class EndpointView(APIView):
    def get(self, request: Request, name: str) -> Response:
        return _detailed(request, _find(request, name, Action.SEE))

    def delete(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.DELETE)
        services.delete_endpoint(_user(request), endpoint)
        return Response({})


class ConfigView(APIView):
    def put(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.UPDATE_CONFIG)
        models = services.servable_models(_user(request), endpoint)
        entities = parsing.read_config(_body(request), models)
        services.update_config(_user(request), endpoint, entities)
        return _detailed(request, endpoint)


class TagsView(APIView):
    def patch(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.UPDATE_TAGS)
        add, delete = parsing.read_tags(_body(request))
        services.update_tags(_user(request), endpoint, add=add, delete=delete)
        return Response({"tags": representation.tags(endpoint)})


class NotificationsView(APIView):
    def patch(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.UPDATE_NOTIFICATIONS)
        wanted = parsing.read_notifications(_body(request))
        services.set_notifications(_user(request), endpoint, wanted)
        return Response({"name": endpoint.name, "email_notifications": wanted})


class RateLimitsView(APIView):
    def put(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.UPDATE_LIMITS)
        limits = parsing.read_rate_limits(_body(request))
        services.set_rate_limits(_user(request), endpoint, limits)
        return Response({"rate_limits": limits})


class AiGatewayView(APIView):
    def put(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.UPDATE_LIMITS)
        wanted = parsing.read_ai_gateway(_body(request))
        services.set_ai_gateway(_user(request), endpoint, wanted)
        return Response(wanted)


class StopView(APIView):
    def post(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.STOP)
        services.stop_endpoint(_user(request), endpoint)
        return _detailed(request, endpoint)


class StartView(APIView):
    def post(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.START)
        services.start_endpoint(_user(request), endpoint)
        return _detailed(request, endpoint)


class CancelUpdateView(APIView):
    def post(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.CANCEL)
        services.cancel_update(_user(request), endpoint)
        return _detailed(request, endpoint)


class EventsView(APIView):
    def get(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.SEE)
        wanted = request.query_params.get("max_results", "100")
        if not wanted.isdecimal() or not 1 <= int(wanted[:6]) <= MAX_EVENTS:
            raise InvalidParameterValue(
                f"max_results is “{wanted[:20]}”; give a whole number from 1 to {MAX_EVENTS}."
            )
        lines = endpoint.events.select_related("actor")[: int(wanted)]
        return Response({"events": [representation.event(line) for line in lines]})


class LogsView(APIView):
    def get(self, request: Request, name: str, entity: str) -> Response:
        endpoint = _find(request, name, Action.READ_LOGS)
        return Response({"logs": service_log_text(endpoint, entity, LOG_LINES)})


class BuildLogsView(APIView):
    def get(self, request: Request, name: str, entity: str) -> Response:
        endpoint = _find(request, name, Action.READ_LOGS)
        version = _entity(endpoint, entity).model_version
        return Response({"logs": registry.build_log(version) if version else ""})


def _entity(endpoint: Endpoint, name: str) -> ServedEntity:
    """The served entity of that name: the active one, else the one being deployed."""
    for config in (endpoint.active_config, endpoint.pending_config):
        found = config.entities.filter(name=name).first() if config else None
        if found is not None:
            return found
    raise ResourceDoesNotExist(f"Endpoint “{endpoint.name}” has no served entity “{name}”.")


class ProfileView(APIView):
    def get(self, request: Request, name: str, entity: str) -> Response:
        endpoint = _find(request, name, Action.SEE)
        found = services.profile_of(latest_decision(_entity(endpoint, entity)))
        if found is None:
            raise ResourceDoesNotExist(
                f"Nothing was measured for served entity “{entity}”: its batching is not from a "
                "profile. See `batching_in_force` of the endpoint for why."
            )
        return Response(representation.profile(found))

    def post(self, request: Request, name: str, entity: str) -> Response:
        endpoint = _find(request, name, Action.MEASURE_AGAIN)
        services.measure_again(_user(request), _entity(endpoint, entity))
        return Response({})


class MetricsView(APIView):
    def get(self, request: Request, name: str) -> HttpResponse:
        endpoint = _find(request, name, Action.READ_METRICS)
        fresh = with_everything(Endpoint.objects.filter(pk=endpoint.pk)).get()
        return HttpResponse(
            texts.metrics(fresh, int(time.time() * 1000)),
            content_type="text/plain; version=0.0.4; charset=utf-8",
        )


class OpenApiView(APIView):
    def get(self, request: Request, name: str) -> Response:
        endpoint = _find(request, name, Action.SEE)
        return Response(openapi(endpoint, public_url(request)))


class PermissionsView(APIView):
    def get(self, request: Request, public_id: str) -> Response:
        user = _user(request)
        endpoint = services.get_endpoint_by_id(user, public_id)
        services.require(user, endpoint, Action.READ_PERMISSIONS)
        return Response(representation.access_control(endpoint))

    def put(self, request: Request, public_id: str) -> Response:
        return self._set(request, public_id, replace=True)

    def patch(self, request: Request, public_id: str) -> Response:
        return self._set(request, public_id, replace=False)

    def _set(self, request: Request, public_id: str, *, replace: bool) -> Response:
        user = _user(request)
        endpoint = services.get_endpoint_by_id(user, public_id)
        services.require(user, endpoint, Action.CHANGE_PERMISSIONS)
        grants = parsing.read_grants(_body(request))
        services.set_permissions(user, endpoint, grants, replace=replace)
        return Response(representation.access_control(endpoint))


class PermissionLevelsView(APIView):
    def get(self, request: Request, public_id: str) -> Response:
        user = _user(request)
        endpoint = services.get_endpoint_by_id(user, public_id)
        services.require(user, endpoint, Action.READ_PERMISSIONS)
        return Response(representation.permission_levels())
