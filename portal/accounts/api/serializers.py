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


class GroupPage(serializers.Serializer[dict[str, Any]]):
    startIndex = serializers.IntegerField(  # noqa: N815 - SCIM's name
        default=1, min_value=0, max_value=2**31
    )
    count = serializers.IntegerField(default=1000, min_value=0, max_value=10_000)
    filter = serializers.RegexField(  # the one form that finds a group by its name
        r'^(displayName eq "[^"]{1,150}")?$', default="", allow_blank=True
    )
