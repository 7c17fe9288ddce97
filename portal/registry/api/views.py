"""Ground of the views: who asks, and the arguments of a call."""

from __future__ import annotations

import logging
from typing import Any, cast

from django.db import OperationalError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from portal.accounts.models import User
from portal.rest import TemporarilyUnavailable, validated

log = logging.getLogger(__name__)


class RegistryView(APIView):
    """A call of the registry or the files API; passing trouble is a 503, which clients retry."""

    def handle_exception(self, exc: Exception) -> Response:
        """Map trouble with the disk or the database to a 503."""
        if isinstance(exc, OSError | OperationalError):
            log.error("passing trouble", exc_info=exc)
            exc = TemporarilyUnavailable(
                "The server could not read or write its files just now. The same call may succeed "
                "in a moment."
            )
        return super().handle_exception(exc)


def user_of(request: Request) -> User:
    """Who asks; the views are only for users with a token."""
    return cast("User", request.user)


def body(request: Request, serializer: type[Serializer[Any]]) -> dict[str, Any]:
    """The checked JSON body."""
    return validated(serializer, request.data)


def query(request: Request, serializer: type[Serializer[Any]]) -> dict[str, Any]:
    """The checked query parameters."""
    return validated(serializer, request.query_params.dict())
