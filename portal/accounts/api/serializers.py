"""What the token calls take."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.accounts.services import MAX_COMMENT
from portal.rest import StrictIntegerField


class TokenCreateInput(serializers.Serializer[dict[str, Any]]):
    comment = serializers.CharField(
        max_length=MAX_COMMENT, allow_blank=True, allow_null=True, default=""
    )
    lifetime_seconds = StrictIntegerField(allow_null=True, default=None)


class TokenDeleteInput(serializers.Serializer[dict[str, Any]]):
    token_id = serializers.CharField(max_length=64)
