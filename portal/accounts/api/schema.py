"""What the calls on tokens and identity take and answer."""

from __future__ import annotations

from functools import partial
from typing import Any

from rest_framework import serializers

from portal.accounts.api import scim, views
from portal.accounts.api import serializers as ask
from portal.schema.calls import NOTHING, Call, describe, path_parameter

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
    emails = Email(many=True, required=False, help_text="Only of oneself, or for workspace admins.")
    groups = GroupReference(
        many=True, required=False, help_text="Only of oneself, or for workspace admins."
    )


class ScimUsers(serializers.Serializer[Any]):
    """A page of users, in SCIM's words."""

    schemas = serializers.ListField(child=serializers.CharField())
    totalResults = serializers.IntegerField()  # noqa: N815 - SCIM's name
    startIndex = serializers.IntegerField()  # noqa: N815 - SCIM's name
    itemsPerPage = serializers.IntegerField()  # noqa: N815 - SCIM's name
    Resources = ScimUser(many=True)


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


call = partial(Call, group=GROUP)
user = partial(
    call,
    parameters=(path_parameter("user_id", "The user's id."),),
    answer=ScimUser,
    errors=(403, 404),
)
group = partial(
    call,
    parameters=(path_parameter("group_id", "The group's id."),),
    answer=ScimGroup,
    errors=(403, 404),
)
ADMINS_ONLY = "Workspace admins only."
MEMBERS = {"members": [{"value": "4711"}]}

describe(scim.Me, get=call(id="get_me", summary="Get the caller", answer=ScimUser))
describe(
    scim.Users,
    get=call(
        id="list_users",
        summary="List the users",
        text="Filters: `userName`, `id` and, for workspace admins, `emails`.",
        query=ask.ScimPage,
        answer=ScimUsers,
    ),
    post=call(
        id="create_user",
        summary="Create a user",
        text=f"{ADMINS_ONLY} Nobody knows the new account's password: an admin resets it on the "
        "user's page, where it is shown once.",
        body=ask.ScimUserInput,
        example={"userName": "maria", "displayName": "Maria", "emails": [{"value": "m@x.org"}]},
        answer=ScimUser,
        errors=(403, 409),
    ),
)
describe(
    scim.UserView,
    get=user(id="get_user", summary="Get a user", errors=(404,)),
    patch=user(
        id="change_user",
        summary="Change a user",
        text=f"{ADMINS_ONLY} Takes `active`, `displayName`, `name` and `emails`.",
        body=ask.ScimPatch,
        example={"Operations": [{"op": "replace", "path": "active", "value": False}]},
    ),
    put=user(
        id="replace_user",
        summary="Change a user, in one object",
        text=f"{ADMINS_ONLY} What is left out stays; names of users do not change.",
        body=ask.ScimUserInput,
        example={"userName": "maria", "active": True},
    ),
    delete=user(
        id="delete_user",
        summary="Shut a user out",
        text=f"{ADMINS_ONLY} The account stays, deactivated and without tokens and groups, since "
        "endpoints and models need their owner.",
        answer=NOTHING,
    ),
)
describe(
    scim.Groups,
    get=call(
        id="list_groups",
        summary="List the groups",
        text="Filters: `displayName` and `id`.",
        query=ask.ScimPage,
        answer=ScimGroups,
    ),
    post=call(
        id="create_group",
        summary="Create a group",
        text=ADMINS_ONLY,
        body=ask.ScimGroupInput,
        example={"displayName": "team", **MEMBERS},
        answer=ScimGroup,
        errors=(403, 409),
    ),
)
describe(
    scim.GroupView,
    get=group(id="get_group", summary="Get a group", errors=(404,)),
    patch=group(
        id="change_group",
        summary="Add and remove members of a group",
        text=f'{ADMINS_ONLY} Takes `members`, also as `members[value eq "4711"]` to remove one.',
        body=ask.ScimPatch,
        example={"Operations": [{"op": "add", "value": MEMBERS}]},
    ),
    put=group(
        id="replace_group",
        summary="Set the members of a group",
        text=ADMINS_ONLY,
        body=ask.ScimGroupInput,
        example={"displayName": "team", **MEMBERS},
    ),
    delete=group(
        id="delete_group",
        summary="Delete a group with all that was granted to it",
        text=ADMINS_ONLY,
        answer=NOTHING,
    ),
)
describe(
    views.TokenCreate,
    post=Call(
        id="create_token",
        group=GROUP,
        summary="Create a token for the caller",
        body=ask.TokenCreateInput,
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
        body=ask.TokenDeleteInput,
        example={"token_id": "0123456789abcdef"},
        answer=NOTHING,
        errors=(404,),
    ),
)
