"""What every page of endpoints needs: who asks, which endpoint, what the user may do with it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from portal.accounts.models import User
from portal.endpoints import reading, services
from portal.endpoints.models import Endpoint
from portal.endpoints.states import ConfigUpdate, PermissionLevel
from portal.rest import FeatureDisabled, PermissionDenied, ResourceDoesNotExist
from portal.ui.tones import Chip
from serving.permissions import Action, allowed

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]

RESTLESS = re.compile(rb"(<time[^>]*>)[^<]*|(name=\"csrfmiddlewaretoken\" value=\")[^\"]*")
"""What differs between two renderings of the same facts: relative times and form tokens."""


def page(view: View[P]) -> View[P]:
    """A view for people who are logged in; refusals become the 404 and 403 pages."""

    @wraps(view)
    def wrapped(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except ResourceDoesNotExist as exc:
            raise Http404(exc.message) from exc
        except (PermissionDenied, FeatureDisabled) as exc:
            raise DjangoPermissionDenied(exc.message) from exc

    return login_required(wrapped)


def user_of(request: HttpRequest) -> User:
    """The user who is logged in."""
    if not isinstance(request.user, User):
        raise DjangoPermissionDenied
    return request.user


def base_url(request: HttpRequest) -> str:
    """Where clients reach this portal."""
    return settings.PUBLIC_URL or f"{request.scheme}://{request.get_host()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An endpoint that the user sees, with what the head of its pages shows."""

    endpoint: Endpoint
    level: PermissionLevel
    ready_chip: Chip
    update_chip: Chip | None
    url: str

    @property
    def may(self) -> dict[str, bool]:
        """What the user may do, by action: `opened.may.delete`."""
        can = allowed(self.level)
        return {action.value: action in can for action in Action}

    @property
    def is_updating(self) -> bool:
        return self.endpoint.config_update == ConfigUpdate.IN_PROGRESS


def open_endpoint(request: HttpRequest, name: str, *, action: Action = Action.SEE) -> Opened:
    """The endpoint: a 404 for whoever may not see it, a 403 for whoever may not do `action`."""
    user = user_of(request)
    endpoint = services.get_endpoint(user, name)
    services.require(user, endpoint, action)
    ready_chip, update_chip = reading.endpoint_chips(endpoint)
    return Opened(
        endpoint=endpoint,
        level=services.level_of(user, endpoint) or PermissionLevel.CAN_VIEW,
        ready_chip=ready_chip,
        update_chip=update_chip,
        url=f"{base_url(request)}/serving-endpoints/{endpoint.name}/invocations",
    )


def live(request: HttpRequest, template: str, context: dict[str, object]) -> HttpResponse:
    """A live region alone; 204 when it is as the page already shows it, so that nothing moves.

    The region's own URL carries what was last seen as `?seen=`.
    """
    blank = render(request, template, context | {"seen": ""})
    seen = hashlib.sha256(RESTLESS.sub(rb"\1\2", blank.content)).hexdigest()[:16]
    if request.GET.get("seen") == seen:
        return HttpResponse(status=204)
    return render(request, template, context | {"seen": seen})
