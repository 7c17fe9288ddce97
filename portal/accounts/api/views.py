"""Tokens for clients."""

from __future__ import annotations

from typing import Any, cast

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.accounts import services
from portal.accounts.api.serializers import TokenCreateInput, TokenDeleteInput
from portal.accounts.models import PersonalAccessToken, User
from portal.rest import validated


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
