"""Users and groups for directory clients: `/api/2.0/preview/scim/v2/...`.

Everybody may read names; emails, memberships and members are told to workspace admins, who alone
change anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from django.contrib.auth.models import Group
from django.db.models import Model, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.accounts import directory, groups, scim
from portal.accounts.api import serializers as ask
from portal.accounts.models import User
from portal.rest import PermissionDenied, validated

SCIM_GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
SCIM_LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
SCIM_USER = "urn:ietf:params:scim:schemas:core:2.0:User"
USER_FIELDS = {"username": "username", "id": "pk", "emails": "email"}
GROUP_FIELDS = {"displayname": "name", "id": "pk"}
LOOKUPS = {"eq": "", "co": "__contains", "sw": "__startswith"}


def _caller(request: Request) -> User:
    return cast(User, request.user)


def _body(request: Request) -> dict[str, Any]:
    return cast(dict[str, Any], request.data)  # the parser takes objects only


def _require_admin(request: Request) -> None:
    if not _caller(request).is_workspace_admin:
        raise PermissionDenied("Only workspace admins may change users and groups.")


def _filtered(found: QuerySet[Any], text: str, fields: dict[str, str]) -> QuerySet[Any]:
    names = {"username": "userName", "displayname": "displayName"}
    condition = scim.read_condition(text, [names.get(name, name) for name in fields])
    if condition is None:
        return found
    field = fields[condition.attribute]
    if field == "pk":  # other operators than eq make no sense for it
        value = condition.value
        return found.filter(pk=int(value) if value.isdecimal() and len(value) < 19 else 0)
    return found.filter(**{field + LOOKUPS[condition.operator]: condition.value})


def _page(request: Request, found: QuerySet[Any], fields: dict[str, str], show: Any) -> Response:
    page = validated(ask.ScimPage, request.query_params.dict())
    found = _filtered(found, page["filter"], fields)
    first = max(page["startIndex"], 1)
    shown: Iterable[Model] = found[first - 1 : first - 1 + page["count"]]
    resources = [show(one) for one in shown]
    return Response(
        {
            "schemas": [SCIM_LIST],
            "totalResults": found.count(),
            "startIndex": first,
            "itemsPerPage": len(resources),
            "Resources": resources,
        }
    )


def _operations(request: Request) -> list[scim.Operation]:
    asked = validated(ask.ScimPatch, request.data)["Operations"]
    return [
        scim.Operation(op=one["op"].lower(), path=one["path"] or "", value=one["value"])
        for one in asked
    ]


# ---------------------------------------------------------------- users


def user_body(user: User, *, is_full: bool) -> dict[str, Any]:
    """A user in SCIM's words; email and groups only where `is_full`."""
    body: dict[str, Any] = {
        "schemas": [SCIM_USER],
        "id": str(user.pk),
        "userName": user.username,
        "displayName": user.get_full_name() or user.username,
        "active": user.is_active,
    }
    if is_full:
        member_of = sorted(user.groups.all(), key=lambda group: group.name)
        body["emails"] = [{"value": user.email or user.username, "type": "work", "primary": True}]
        body["groups"] = [{"display": one.name, "value": str(one.pk)} for one in member_of]
    return body


class Me(APIView):
    def get(self, request: Request) -> Response:
        return Response(user_body(_caller(request), is_full=True))


class Users(APIView):
    def get(self, request: Request) -> Response:
        is_admin = _caller(request).is_workspace_admin
        found = User.objects.order_by("username").prefetch_related("groups")
        fields = USER_FIELDS if is_admin else {"username": "username", "id": "pk"}
        return _page(request, found, fields, lambda user: user_body(user, is_full=is_admin))

    def post(self, request: Request) -> Response:
        _require_admin(request)
        asked = validated(ask.ScimUserInput, request.data)
        user = directory.create_user(
            asked["userName"],
            scim.read_user(_body(request)),
            scim.read_members(asked["groups"] or []),
        )
        return Response(user_body(user, is_full=True))


class UserView(APIView):
    def get(self, request: Request, user_id: str) -> Response:
        user = directory.find_user(user_id)
        caller = _caller(request)
        return Response(user_body(user, is_full=caller.is_workspace_admin or caller == user))

    def patch(self, request: Request, user_id: str) -> Response:
        _require_admin(request)
        user = directory.find_user(user_id)
        directory.change_user(user, scim.read_user_operations(_operations(request)))
        return Response(user_body(user, is_full=True))

    def put(self, request: Request, user_id: str) -> Response:
        _require_admin(request)
        user = directory.find_user(user_id)
        validated(ask.ScimUserInput, {"userName": user.username} | _body(request))
        directory.change_user(user, scim.read_user(_body(request)))
        return Response(user_body(user, is_full=True))

    def delete(self, request: Request, user_id: str) -> Response:
        _require_admin(request)
        _body(request)  # there should be none; one of no use is refused all the same
        directory.remove_user(directory.find_user(user_id))
        return Response({})


# ---------------------------------------------------------------- groups


def group_body(group: Group, *, is_full: bool) -> dict[str, Any]:
    """A group in SCIM's words; its members only where `is_full`."""
    body: dict[str, Any] = {
        "schemas": [SCIM_GROUP],
        "id": str(group.pk),
        "displayName": group.name,
    }
    if is_full:
        body["members"] = [
            {"display": user.username, "value": str(user.pk)} for user in groups.members_of(group)
        ]
    return body


class Groups(APIView):
    def get(self, request: Request) -> Response:
        is_admin = _caller(request).is_workspace_admin
        found = Group.objects.order_by("name")
        return _page(
            request, found, GROUP_FIELDS, lambda group: group_body(group, is_full=is_admin)
        )

    def post(self, request: Request) -> Response:
        _require_admin(request)
        asked = validated(ask.ScimGroupInput, request.data)
        members = scim.read_members(asked["members"] or [])
        return Response(
            group_body(directory.create_group(asked["displayName"], members), is_full=True)
        )


class GroupView(APIView):
    def get(self, request: Request, group_id: str) -> Response:
        is_admin = _caller(request).is_workspace_admin
        return Response(group_body(directory.find_group(group_id), is_full=is_admin))

    def patch(self, request: Request, group_id: str) -> Response:
        _require_admin(request)
        group = directory.find_group(group_id)
        directory.change_group(group, scim.read_group_operations(_operations(request)))
        return Response(group_body(group, is_full=True))

    def put(self, request: Request, group_id: str) -> Response:
        _require_admin(request)
        group = directory.find_group(group_id)
        asked = validated(ask.ScimGroupInput, {"displayName": group.name} | _body(request))
        members = scim.read_members(asked["members"] or [])
        directory.change_group(group, scim.GroupChange(name=asked["displayName"], only=members))
        return Response(group_body(group, is_full=True))

    def delete(self, request: Request, group_id: str) -> Response:
        _require_admin(request)
        _body(request)  # there should be none; one of no use is refused all the same
        directory.remove_group(directory.find_group(group_id))
        return Response({})
