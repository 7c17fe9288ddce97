"""`/api/2.0/permissions/registered-models/{name}`: who may read a model.

The group `users` with CAN_READ means that it is not restricted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from portal.accounts.models import ADMINS, USERS
from portal.registry import services
from portal.registry.api import serializers as ask
from portal.registry.api.views import RegistryView, body, user_of
from portal.registry.models import RegisteredModel
from portal.registry.services import Readers
from portal.rest import InvalidParameterValue

CAN_READ, CAN_MANAGE = "CAN_READ", "CAN_MANAGE"
LEVELS = {
    CAN_READ: "See the model, download its files and serve it.",
    CAN_MANAGE: "Also change, share and delete it; only its owner and workspace admins.",
}


class ModelPermissionsView(RegistryView):
    def get(self, request: Request, name: str) -> Response:
        return Response(_answer(services.find_model(user_of(request), name)))

    def put(self, request: Request, name: str) -> Response:
        return self._set(request, name, Readers(is_restricted=True))

    def patch(self, request: Request, name: str) -> Response:
        return self._set(request, name, None)

    def _set(self, request: Request, name: str, before: Readers | None) -> Response:
        """Add what the body names to `before`, or to what there is."""
        user = user_of(request)
        model = services.find_model(user, name)
        services.require_write(user, model)
        wanted = before or services.readers_of(model)
        for grant in body(request, ask.ModelGrants)["access_control_list"]:
            wanted = _with(wanted, grant, model)
        services.set_readers(user, model, wanted)
        return Response(_answer(model))


class ModelPermissionLevelsView(RegistryView):
    def get(self, request: Request, name: str) -> Response:
        services.find_model(user_of(request), name)
        levels = [
            {"permission_level": level, "description": text} for level, text in LEVELS.items()
        ]
        return Response({"permission_levels": levels})


def _with(readers: Readers, grant: dict[str, Any], model: RegisteredModel) -> Readers:
    user = grant["user_name"] or grant["service_principal_name"]
    group = grant["group_name"]
    if sum(map(bool, (grant["user_name"], grant["service_principal_name"], group))) != 1:
        raise InvalidParameterValue(
            "Name one of user_name, group_name and service_principal_name in each item of "
            "access_control_list."
        )
    if user == model.owner.username or group == ADMINS:
        if grant["permission_level"] != CAN_MANAGE:
            raise InvalidParameterValue(
                f"{user or group} always has {CAN_MANAGE} here: the owner and the workspace's "
                "admins cannot be locked out. Leave them out of the list."
            )
        return readers
    if grant["permission_level"] != CAN_READ:
        raise InvalidParameterValue(
            f"{user or group} can only be given {CAN_READ}: the owner and workspace admins manage "
            "a model."
        )
    if group == USERS:
        return replace(readers, is_restricted=False)
    if group:
        return replace(readers, group_names=(*readers.group_names, group))
    return replace(readers, user_names=(*readers.user_names, user))


def _answer(model: RegisteredModel) -> dict[str, Any]:
    readers = services.readers_of(model)
    groups = readers.group_names if readers.is_restricted else (*readers.group_names, USERS)
    return {
        "object_id": f"/registered-models/{model.name}",
        "object_type": "registered-model",
        "access_control_list": [
            _item("user_name", model.owner.username, CAN_MANAGE),
            _item("group_name", ADMINS, CAN_MANAGE, is_inherited=True),
            *(_item("user_name", name, CAN_READ) for name in readers.user_names),
            *(_item("group_name", name, CAN_READ) for name in groups),
        ],
    }


def _item(kind: str, name: str, level: str, *, is_inherited: bool = False) -> dict[str, Any]:
    permission: dict[str, Any] = {"permission_level": level, "inherited": is_inherited}
    if is_inherited:
        permission["inherited_from_object"] = ["/registered-models/"]
    return {kind: name, "display_name": name, "all_permissions": [permission]}
