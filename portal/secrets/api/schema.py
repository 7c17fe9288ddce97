"""What the calls on secrets take and answer."""

from __future__ import annotations

from functools import partial
from typing import Any

from rest_framework import serializers

from portal.schema.calls import NOTHING, Call, describe
from portal.secrets.api import views
from portal.secrets.states import ScopePermission

call = partial(Call, group="Secrets")


class SecretScope(serializers.Serializer[Any]):
    name = serializers.CharField()
    backend_type = serializers.ChoiceField([views.BACKEND])


class SecretScopeList(serializers.Serializer[Any]):
    scopes = SecretScope(many=True)


class SecretMetadata(serializers.Serializer[Any]):
    """A key, without its value."""

    key = serializers.CharField()
    last_updated_timestamp = serializers.IntegerField()


class SecretList(serializers.Serializer[Any]):
    secrets = SecretMetadata(many=True)


class ScopeAcl(serializers.Serializer[Any]):
    principal = serializers.CharField(help_text="A user or a group.")
    permission = serializers.ChoiceField(ScopePermission.values)


class ScopeAclList(serializers.Serializer[Any]):
    items = ScopeAcl(many=True)


describe(
    views.CreateScope,
    post=call(
        id="create_scope",
        summary="Create a scope",
        text="The creator manages it; so does everybody with `initial_manage_principal` `users`.",
        body=views.CreateScopeInput,
        example={"scope": "models"},
        answer=NOTHING,
        errors=(403, 409),
    ),
)
describe(
    views.DeleteScope,
    post=call(
        id="delete_scope",
        summary="Delete a scope with its secrets",
        body=views.ScopeInput,
        example={"scope": "models"},
        answer=NOTHING,
        errors=(403, 404),
    ),
)
describe(
    views.ListScopes,
    get=call(id="list_scopes", summary="List the caller's scopes", answer=SecretScopeList),
)
describe(
    views.PutSecret,
    post=call(
        id="put_secret",
        summary="Set a secret's value",
        text=(
            "Give exactly one of `string_value` and `bytes_value` (base64). Endpoints name it in "
            "their environment as `{{secrets/scope/key}}`; nobody can read it again."
        ),
        body=views.PutInput,
        example={"scope": "models", "key": "api-key", "string_value": "…"},
        answer=NOTHING,
        errors=(403, 404),
    ),
)
describe(
    views.DeleteSecret,
    post=call(
        id="delete_secret",
        summary="Delete a secret",
        body=views.KeyInput,
        example={"scope": "models", "key": "api-key"},
        answer=NOTHING,
        errors=(403, 404),
    ),
)
describe(
    views.ListSecrets,
    get=call(
        id="list_secrets",
        summary="List a scope's keys",
        query=views.ScopeInput,
        answer=SecretList,
        errors=(403, 404),
    ),
)
describe(
    views.GetSecret,
    get=call(
        id="get_secret",
        summary="Get a secret's value: refused to everybody",
        query=views.KeyInput,
        errors=(403, 404),
    ),
)
describe(
    views.PutAcl,
    post=call(
        id="put_acl",
        summary="Set what a user or group may do with a scope",
        body=views.PutAclInput,
        example={"scope": "models", "principal": "users", "permission": "READ"},
        answer=NOTHING,
        errors=(403, 404),
    ),
)
describe(
    views.DeleteAcl,
    post=call(
        id="delete_acl",
        summary="Take a user's or group's permission away",
        body=views.PrincipalInput,
        example={"scope": "models", "principal": "users"},
        answer=NOTHING,
        errors=(403, 404),
    ),
)
describe(
    views.GetAcl,
    get=call(
        id="get_acl",
        summary="Get what a user or group may do with a scope",
        query=views.PrincipalInput,
        answer=ScopeAcl,
        errors=(403, 404),
    ),
)
describe(
    views.ListAcls,
    get=call(
        id="list_acls",
        summary="List who may do what with a scope",
        query=views.ScopeInput,
        answer=ScopeAclList,
        errors=(403, 404),
    ),
)
