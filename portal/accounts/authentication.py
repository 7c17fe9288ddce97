"""`Authorization: Bearer <personal access token>` for the REST API."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from django.utils import timezone
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from portal.accounts.models import PersonalAccessToken, User

NOTE_USE_EVERY = timedelta(minutes=1)
"""A token's last use is written at most this often: polling clients cost no write a request."""


def sha256(token: str) -> str:
    """How a token is kept and looked up."""
    return hashlib.sha256(token.encode()).hexdigest()


class TokenAuthentication(BaseAuthentication):
    """The user of a usable token; 401 for a bad one, nobody without one."""

    def authenticate(self, request: Request) -> tuple[User, PersonalAccessToken] | None:
        """The token's user."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != "bearer" or not value.strip():
            raise exceptions.AuthenticationFailed("Send Authorization: Bearer <token>.")
        token = (
            PersonalAccessToken.objects.usable()
            .select_related("user")
            .filter(sha256=sha256(value.strip()))
            .first()
        )
        if token is None:
            raise exceptions.AuthenticationFailed("The token is unknown, expired or revoked.")
        now = timezone.now()
        if token.last_used_at is None or now - token.last_used_at > NOTE_USE_EVERY:
            PersonalAccessToken.objects.filter(pk=token.pk).update(last_used_at=now)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """Makes DRF answer 401 rather than 403."""
        return "Bearer"
