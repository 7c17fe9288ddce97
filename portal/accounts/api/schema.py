"""What the calls on tokens and identity take and answer."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.accounts.api import views
from portal.accounts.api.serializers import GroupPage, TokenCreateInput, TokenDeleteInput
from portal.schema.calls import NOTHING, Call, describe

GROUP = "Identity and tokens"


class TokenInfo(serializers.Serializer[Any]):
    """A personal access token, without its value."""

    token_id = serializers.CharField()
    comment = serializers.CharField()
    creation_time = serializers.IntegerField()
    expiry_time = serializers.IntegerField(help_text="-1 for no expiry.")


class CreatedToken(serializers.Serializer[Any]):
    token_value = serializers.CharField(help_text="Shown only now.")
    token_info = TokenInfo()


class TokenList(serializers.Serializer[Any]):
    token_infos = TokenInfo(many=True)


class Email(serializers.Serializer[Any]):
    value = serializers.CharField()
    type = serializers.CharField()
    primary = serializers.BooleanField()


class GroupReference(serializers.Serializer[Any]):
    display = serializers.CharField()
    value = serializers.CharField(help_text="The group's id.")


class ScimUser(serializers.Serializer[Any]):
    """A user, in SCIM's words."""

    schemas = serializers.ListField(child=serializers.CharField())
    id = serializers.CharField()
    userName = serializers.CharField()  # noqa: N815 - SCIM's name
    displayName = serializers.CharField()  # noqa: N815 - SCIM's name
    active = serializers.BooleanField()
    emails = Email(many=True)
    groups = GroupReference(many=True)


class GroupMember(serializers.Serializer[Any]):
    display = serializers.CharField()
    value = serializers.CharField(help_text="The user's id.")


class ScimGroup(serializers.Serializer[Any]):
    schemas = serializers.ListField(child=serializers.CharField())
    id = serializers.CharField()
    displayName = serializers.CharField()  # noqa: N815 - SCIM's name
    members = GroupMember(many=True, required=False, help_text="Only for workspace admins.")


class ScimGroups(serializers.Serializer[Any]):
    """A page of groups, in SCIM's words."""

    schemas = serializers.ListField(child=serializers.CharField())
    totalResults = serializers.IntegerField()  # noqa: N815 - SCIM's name
    startIndex = serializers.IntegerField()  # noqa: N815 - SCIM's name
    itemsPerPage = serializers.IntegerField()  # noqa: N815 - SCIM's name
    Resources = ScimGroup(many=True)


describe(
    views.Groups,
    get=Call(
        id="list_groups",
        group=GROUP,
        summary="List the groups",
        query=GroupPage,
        answer=ScimGroups,
    ),
)
describe(
    views.Me,
    get=Call(id="get_me", group=GROUP, summary="Get the caller", answer=ScimUser),
)
describe(
    views.TokenCreate,
    post=Call(
        id="create_token",
        group=GROUP,
        summary="Create a token for the caller",
        body=TokenCreateInput,
        is_body_required=False,
        example={"comment": "notebook", "lifetime_seconds": 86400},
        answer=CreatedToken,
    ),
)
describe(
    views.TokenList,
    get=Call(id="list_tokens", group=GROUP, summary="List the caller's tokens", answer=TokenList),
)
describe(
    views.TokenDelete,
    post=Call(
        id="delete_token",
        group=GROUP,
        summary="Revoke a token of the caller",
        text="It is refused everywhere within two seconds.",
        body=TokenDeleteInput,
        example={"token_id": "0123456789abcdef"},
        answer=NOTHING,
        errors=(404,),
    ),
)
