"""What the calls on who may read a model take and answer."""

from __future__ import annotations

from functools import partial
from typing import Any

from rest_framework import serializers

from portal.registry.api import permissions as views
from portal.registry.api import serializers as ask
from portal.registry.api.permissions import LEVELS
from portal.schema.calls import Call, describe, path_parameter


class HeldModelPermission(serializers.Serializer[Any]):
    permission_level = serializers.ChoiceField(list(LEVELS))
    inherited = serializers.BooleanField()
    inherited_from_object = serializers.ListField(child=serializers.CharField(), required=False)


class ModelAccessControlEntry(serializers.Serializer[Any]):
    user_name = serializers.CharField(required=False)
    group_name = serializers.CharField(required=False)
    display_name = serializers.CharField()
    all_permissions = HeldModelPermission(many=True)


class ModelAccessControl(serializers.Serializer[Any]):
    object_id = serializers.CharField()
    object_type = serializers.CharField()
    access_control_list = ModelAccessControlEntry(many=True)


class ModelPermissionLevel(serializers.Serializer[Any]):
    permission_level = serializers.ChoiceField(list(LEVELS))
    description = serializers.CharField()


class ModelPermissionLevels(serializers.Serializer[Any]):
    permission_levels = ModelPermissionLevel(many=True)


call = partial(
    Call,
    group="Permissions",
    parameters=(path_parameter("name", "The model's name.", pattern=r"^[^/]+$"),),
)
change = partial(
    call,
    body=ask.ModelGrants,
    is_body_required=False,
    example={
        "access_control_list": [
            {"user_name": "someone@example.com", "permission_level": "CAN_READ"}
        ]
    },
    answer=ModelAccessControl,
    errors=(403, 404, 503),
)
describe(
    views.ModelPermissionsView,
    get=call(
        id="get_model_permissions",
        summary="Get who may read a model",
        text="The group `users` is among them unless the model is restricted.",
        answer=ModelAccessControl,
        errors=(404, 503),
    ),
    put=change(
        id="set_model_permissions",
        summary="Replace who may read a model",
        text="Without the group `users` it is restricted: hidden from all who are not named.",
    ),
    patch=change(id="update_model_permissions", summary="Let more users and groups read a model"),
)
describe(
    views.ModelPermissionLevelsView,
    get=call(
        id="get_model_permission_levels",
        summary="Get the levels and what they allow",
        answer=ModelPermissionLevels,
        errors=(404, 503),
    ),
)
