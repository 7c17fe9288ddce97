"""The JSON objects that calls on endpoints take, for their description.

They are read by `parsing`; tests hold these to what the API really takes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rest_framework import serializers

from portal.endpoints.services.limits import MAX_CALLS, MAX_LIMITS
from portal.endpoints.services.validation import BATCHING_BOUNDS, MAX_PREFERRED_SIZES
from portal.endpoints.states import (
    PermissionLevel,
)
from portal.rest import StrictBooleanField, StrictIntegerField
from serving.spec import LimitKey
from serving.workloads import WORKLOAD_SIZES, WORKLOAD_TYPES

text = partial(serializers.CharField, required=False, allow_null=True)
whole = partial(StrictIntegerField, required=False, allow_null=True)
flag = partial(StrictBooleanField, required=False, allow_null=True)
free = partial(serializers.DictField, required=False, allow_null=True)

LIMITS = f"At most {MAX_LIMITS}, each with a key and principal of its own."
NAME = r"^[A-Za-z0-9_-]{1,63}$"


class Batching(serializers.Serializer[Any]):
    """Triton's dynamic batching, where it is not left to Shoal."""

    for _name, (_least, _most) in BATCHING_BOUNDS.items():
        locals()[_name] = StrictIntegerField(required=False, min_value=_least, max_value=_most)
    preferred_batch_size = serializers.ListField(
        child=StrictIntegerField(min_value=1), required=False, max_length=MAX_PREFERRED_SIZES
    )


class ServedEntityInput(serializers.Serializer[Any]):
    """One model version on given compute."""

    name = serializers.RegexField(
        NAME, required=False, allow_null=True, help_text="Default: <model>-<version>."
    )
    entity_name = serializers.CharField(help_text="A registered model: catalog.schema.model.")
    entity_version = serializers.CharField(help_text="A version's number or @alias.")
    workload_type = serializers.ChoiceField(
        list(WORKLOAD_TYPES), required=False, allow_null=True, help_text="Default: CPU."
    )
    workload_size = serializers.ChoiceField(
        list(WORKLOAD_SIZES), required=False, allow_null=True, help_text="Or numbers of one's own."
    )
    min_provisioned_concurrency = whole(help_text="A multiple of 4.")
    max_provisioned_concurrency = whole(help_text="A multiple of 4.")
    scale_to_zero_enabled = flag()
    throughput_optimized = flag(
        help_text="Serve with Triton's dynamic batching. Absent in an update: unchanged."
    )
    environment_vars = serializers.DictField(
        child=serializers.CharField(allow_blank=True),
        required=False,
        allow_null=True,
        help_text="Shown to all who see the endpoint; `{{secrets/scope/key}}` names a secret.",
    )
    batching = Batching(required=False, allow_null=True)


class ServedModelInput(ServedEntityInput):
    """A served entity in the older form."""

    entity_name = None  # type: ignore[assignment]  # takes the field away, by DRF's rules
    entity_version = None  # type: ignore[assignment]  # likewise
    model_name = serializers.CharField(help_text="A registered model: catalog.schema.model.")
    model_version = serializers.CharField(help_text="A version's number or @alias.")


class Route(serializers.Serializer[Any]):
    """A served entity's share of the traffic."""

    served_entity_name = text()
    served_model_name = text(help_text="The older name of served_entity_name.")
    traffic_percentage = StrictIntegerField(min_value=0, max_value=100)


class TrafficConfig(serializers.Serializer[Any]):
    """Shares that total 100."""

    routes = Route(many=True, required=False, allow_null=True)


class EndpointConfigInput(serializers.Serializer[Any]):
    """What an endpoint serves: `served_entities` or, in the older form, `served_models`."""

    served_entities = ServedEntityInput(many=True, required=False, allow_null=True)
    served_models = ServedModelInput(many=True, required=False, allow_null=True)
    traffic_config = TrafficConfig(required=False, allow_null=True)
    auto_capture_config = free(help_text="Accepted without effect.")


class EndpointTagInput(serializers.Serializer[Any]):
    key = serializers.CharField(max_length=255)
    value = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=1024
    )


class RateLimitInput(serializers.Serializer[Any]):
    """How many calls a minute."""

    calls = StrictIntegerField(min_value=0, max_value=MAX_CALLS)
    key = serializers.ChoiceField(
        [key.value for key in LimitKey], required=False, allow_null=True, help_text="Whose calls."
    )
    principal = text(help_text="The user or group; for `endpoint` nobody.")
    renewal_period = serializers.ChoiceField(["minute"])


class RateLimitsInput(serializers.Serializer[Any]):
    rate_limits = RateLimitInput(many=True, required=False, allow_null=True, help_text=LIMITS)


class AiGatewayInput(RateLimitsInput):
    """Settings of the AI gateway."""

    usage_tracking_config = free()
    inference_table_config = free()
    guardrails = free()
    fallback_config = free()


class EmailNotifications(serializers.Serializer[Any]):
    on_update_success = serializers.ListField(child=serializers.CharField(), required=False)
    on_update_failure = serializers.ListField(child=serializers.CharField(), required=False)


class NotificationsInput(serializers.Serializer[Any]):
    email_notifications = EmailNotifications(required=False, allow_null=True)


class CreateEndpoint(serializers.Serializer[Any]):
    name = serializers.RegexField(NAME)
    config = EndpointConfigInput()
    description = text(allow_blank=True)
    tags = EndpointTagInput(many=True, required=False, allow_null=True)
    email_notifications = EmailNotifications(required=False, allow_null=True)
    rate_limits = RateLimitInput(many=True, required=False, allow_null=True, help_text=LIMITS)
    ai_gateway = AiGatewayInput(required=False, allow_null=True)
    route_optimized = flag(help_text="Accepted without effect.")
    budget_policy_id = text(help_text="Accepted without effect.")
    telemetry_config = free(help_text="Accepted without effect.")


class TagChanges(serializers.Serializer[Any]):
    add_tags = EndpointTagInput(many=True, required=False, allow_null=True)
    delete_tags = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True
    )


class GrantInput(serializers.Serializer[Any]):
    """Name one of the three."""

    user_name = text()
    group_name = text()
    service_principal_name = text(help_text="Means a user.")
    permission_level = serializers.ChoiceField(PermissionLevel.values)


class AccessControlInput(serializers.Serializer[Any]):
    access_control_list = GrantInput(many=True, required=False, allow_null=True)


_ROWS = {"type": "array", "items": {}}
QUERY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "dataframe_split": {
            "type": "object",
            "properties": {
                "columns": {"type": "array", "items": {"type": ["string", "integer"]}},
                "index": _ROWS,
                "data": {"type": "array", "items": _ROWS},
            },
            "required": ["data"],
        },
        "dataframe_records": {"type": "array", "items": {"type": "object"}},
        "inputs": {"type": ["array", "object"], "description": "Tensors: one, or by name."},
        "instances": {**_ROWS, "description": "Tensors, a row each."},
        "params": {"type": "object"},
        "client_request_id": {"type": "string", "description": "Accepted without effect."},
    },
}
