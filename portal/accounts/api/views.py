"""Tokens and identity for clients."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.models import Group
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.accounts import groups, services
from portal.accounts.api.serializers import GroupPage, TokenCreateInput, TokenDeleteInput
from portal.accounts.models import PersonalAccessToken, User
from portal.rest import validated

SCIM_GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
SCIM_LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
SCIM_USER = "urn:ietf:params:scim:schemas:core:2.0:User"


def token_info(token: PersonalAccessToken) -> dict[str, Any]:
    """A token as clients see it; times in milliseconds, -1 for no expiry."""
    return {
        "token_id": token.public_id,
        "comment": token.comment,
        "creation_time": int(token.created_at.timestamp() * 1000),
        "expiry_time": -1 if token.expires_at is None else int(token.expires_at.timestamp() * 1000),
    }


class TokenCreate(APIView):
    def post(self, request: Request) -> Response:
        wanted = validated(TokenCreateInput, request.data)
        token, value = services.create_token(
            cast(User, request.user),
            comment=wanted["comment"] or "",
            lifetime_s=wanted["lifetime_seconds"],
        )
        return Response({"token_value": value, "token_info": token_info(token)})


class TokenList(APIView):
    def get(self, request: Request) -> Response:
        tokens = services.live_tokens(cast(User, request.user))
        return Response({"token_infos": [token_info(token) for token in tokens]})


class TokenDelete(APIView):
    def post(self, request: Request) -> Response:
        wanted = validated(TokenDeleteInput, request.data)
        services.revoke_token(services.find_token(cast(User, request.user), wanted["token_id"]))
        return Response({})


class Me(APIView):
    def get(self, request: Request) -> Response:
        user = cast(User, request.user)
        emails = [{"value": user.email or user.username, "type": "work", "primary": True}]
        member_of = [
            {"display": group.name, "value": str(group.pk)}
            for group in user.groups.order_by("name")
        ]
        return Response(
            {
                "schemas": [SCIM_USER],
                "id": str(user.pk),
                "userName": user.username,
                "displayName": user.get_full_name() or user.username,
                "active": user.is_active,
                "emails": emails,
                "groups": member_of,
            }
        )


class Groups(APIView):
    """Groups by name; their members only where the caller administers the workspace."""

    def get(self, request: Request) -> Response:
        page = validated(GroupPage, request.query_params.dict())
        first, count = max(page["startIndex"], 1), page["count"]
        found = Group.objects.order_by("name")
        if page["filter"]:
            found = found.filter(name=page["filter"].split('"')[1])
        shows_members = cast(User, request.user).is_workspace_admin
        resources = [
            {
                "schemas": [SCIM_GROUP],
                "id": str(group.pk),
                "displayName": group.name,
                **({"members": _members(group)} if shows_members else {}),
            }
            for group in found[first - 1 : first - 1 + count]
        ]
        return Response(
            {
                "schemas": [SCIM_LIST],
                "totalResults": found.count(),
                "startIndex": first,
                "itemsPerPage": len(resources),
                "Resources": resources,
            }
        )


def _members(group: Group) -> list[dict[str, str]]:
    return [{"display": user.username, "value": str(user.pk)} for user in groups.members_of(group)]
