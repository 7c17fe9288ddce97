"""What the calls on tokens, users and groups take."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.accounts.services import MAX_COMMENT
from portal.rest import StrictBooleanField, StrictIntegerField


class TokenCreateInput(serializers.Serializer[dict[str, Any]]):
    comment = serializers.CharField(
        max_length=MAX_COMMENT, allow_blank=True, allow_null=True, default=""
    )
    lifetime_seconds = StrictIntegerField(allow_null=True, default=None)


class TokenDeleteInput(serializers.Serializer[dict[str, Any]]):
    token_id = serializers.CharField(max_length=64)


class ScimPage(serializers.Serializer[dict[str, Any]]):
    startIndex = serializers.IntegerField(  # noqa: N815 - SCIM's name
        default=1, min_value=0, max_value=2**31
    )
    count = serializers.IntegerField(default=1000, min_value=0, max_value=10_000)
    filter = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=300,
        help_text='Such as `displayName eq "team"`; also `co` (contains) and `sw` (starts with).',
    )


class ScimReference(serializers.Serializer[dict[str, Any]]):
    """Somebody or something, by its id."""

    value = serializers.CharField(max_length=64)


class ScimEmail(serializers.Serializer[dict[str, Any]]):
    value = serializers.CharField(max_length=150)
    primary = StrictBooleanField(default=False)


class ScimName(serializers.Serializer[dict[str, Any]]):
    givenName = serializers.CharField(  # noqa: N815 - SCIM's name
        max_length=150, default="", allow_blank=True, allow_null=True
    )
    familyName = serializers.CharField(  # noqa: N815 - SCIM's name
        max_length=150, default="", allow_blank=True, allow_null=True
    )


class ScimUserInput(serializers.Serializer[dict[str, Any]]):
    userName = serializers.CharField(max_length=150)  # noqa: N815 - SCIM's name
    displayName = serializers.CharField(  # noqa: N815 - SCIM's name
        max_length=150, required=False, allow_blank=True
    )
    name = ScimName(required=False)
    emails = ScimEmail(many=True, required=False)
    active = StrictBooleanField(required=False)
    groups = ScimReference(many=True, default=None, allow_null=True)


class ScimGroupInput(serializers.Serializer[dict[str, Any]]):
    displayName = serializers.CharField(max_length=150)  # noqa: N815 - SCIM's name
    members = ScimReference(many=True, default=None, allow_null=True)


class ScimOperation(serializers.Serializer[dict[str, Any]]):
    op = serializers.RegexField(r"^(?i:add|remove|replace)$")
    path = serializers.CharField(max_length=300, default="", allow_blank=True, allow_null=True)
    value = serializers.JSONField(default=None, allow_null=True)


class ScimPatch(serializers.Serializer[dict[str, Any]]):
    Operations = serializers.ListField(child=ScimOperation(), min_length=1, max_length=1000)
