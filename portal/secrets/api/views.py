"""Secret scopes, keys and their permissions over REST, in the shape that clients know."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.accounts.models import User
from portal.rest import InvalidParameterValue, MalformedRequest, validated
from portal.secrets import services
from portal.secrets.models import ScopeAcl
from portal.secrets.services.keys import MAX_VALUE_BYTES
from portal.secrets.states import ScopePermission

BACKEND = "DATABRICKS"
"""The backend that clients name for values that the portal keeps itself."""
MAX_BASE64 = MAX_VALUE_BYTES * 4 // 3 + 4


class Text(serializers.CharField):
    """A JSON text, as it is; no number."""

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, **options)

    def to_internal_value(self, data: Any) -> str:
        """Refuse what REST framework would convert."""
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class Name(Text):
    """A scope's, key's or principal's name; the services say what it may hold."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=150, **options)


class ScopeInput(serializers.Serializer[dict[str, Any]]):
    scope = Name()


class CreateScopeInput(ScopeInput):
    initial_manage_principal = Name(default="", allow_blank=True, allow_null=True)
    scope_backend_type = Name(default=BACKEND, allow_null=True)


class KeyInput(ScopeInput):
    key = Name()


class PutInput(KeyInput):
    string_value = Text(max_length=MAX_VALUE_BYTES, default=None, allow_null=True, allow_blank=True)
    bytes_value = Text(max_length=MAX_BASE64, default=None, allow_null=True, allow_blank=True)


class PrincipalInput(ScopeInput):
    principal = Name()


class PutAclInput(PrincipalInput):
    permission = serializers.ChoiceField(choices=ScopePermission.choices)


def _user(request: Request) -> User:
    return cast(User, request.user)


def _query(request: Request, kind: type[serializers.Serializer[Any]]) -> dict[str, Any]:
    return validated(kind, request.query_params.dict())


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


class CreateScope(APIView):
    def post(self, request: Request) -> Response:
        asked = validated(CreateScopeInput, request.data)
        if (asked["scope_backend_type"] or BACKEND).upper() != BACKEND:
            raise InvalidParameterValue(f"scope_backend_type: Only {BACKEND} is known here.")
        services.create_scope(
            _user(request),
            asked["scope"],
            initial_manage_principal=asked["initial_manage_principal"] or "",
        )
        return Response({})


class DeleteScope(APIView):
    def post(self, request: Request) -> Response:
        services.delete_scope(_user(request), validated(ScopeInput, request.data)["scope"])
        return Response({})


class ListScopes(APIView):
    def get(self, request: Request) -> Response:
        scopes = services.list_scopes(_user(request))
        return Response(
            {"scopes": [{"name": scope.name, "backend_type": BACKEND} for scope in scopes]}
        )


class PutSecret(APIView):
    def post(self, request: Request) -> Response:
        asked = validated(PutInput, request.data)
        text, encoded = asked["string_value"], asked["bytes_value"]
        if (text is None) == (encoded is None):
            raise MalformedRequest("Give exactly one of string_value and bytes_value.")
        value = text.encode() if text is not None else services.from_base64(encoded)
        services.put_secret(_user(request), asked["scope"], asked["key"], value)
        return Response({})


class DeleteSecret(APIView):
    def post(self, request: Request) -> Response:
        asked = validated(KeyInput, request.data)
        services.delete_secret(_user(request), asked["scope"], asked["key"])
        return Response({})


class ListSecrets(APIView):
    def get(self, request: Request) -> Response:
        secrets = services.list_secrets(_user(request), _query(request, ScopeInput)["scope"])
        return Response(
            {
                "secrets": [
                    {"key": s.key, "last_updated_timestamp": _milliseconds(s.changed_at)}
                    for s in secrets
                ]
            }
        )


class GetSecret(APIView):
    """Values are write-only: 403 for whoever may see the scope."""

    def get(self, request: Request) -> Response:
        asked = _query(request, KeyInput)
        services.refuse_to_show(_user(request), asked["scope"], asked["key"])


def _acl(acl: ScopeAcl) -> dict[str, str]:
    return {"principal": acl.principal, "permission": acl.permission}


class PutAcl(APIView):
    def post(self, request: Request) -> Response:
        asked = validated(PutAclInput, request.data)
        services.put_acl(
            _user(request),
            asked["scope"],
            asked["principal"],
            ScopePermission(asked["permission"]),
        )
        return Response({})


class DeleteAcl(APIView):
    def post(self, request: Request) -> Response:
        asked = validated(PrincipalInput, request.data)
        services.delete_acl(_user(request), asked["scope"], asked["principal"])
        return Response({})


class GetAcl(APIView):
    def get(self, request: Request) -> Response:
        asked = _query(request, PrincipalInput)
        return Response(_acl(services.get_acl(_user(request), asked["scope"], asked["principal"])))


class ListAcls(APIView):
    def get(self, request: Request) -> Response:
        acls = services.list_acls(_user(request), _query(request, ScopeInput)["scope"])
        return Response({"items": [_acl(acl) for acl in acls]})
