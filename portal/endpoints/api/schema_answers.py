"""The JSON objects that calls on endpoints answer with, for their description.

They are made by `representation`; tests hold these to what the API really answers.
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.endpoints.api.schema_requests import Batching, EmailNotifications
from portal.endpoints.states import (
    ConfigUpdate,
    EntityState,
    PermissionLevel,
    Ready,
    TritonStatus,
)
from serving.spec import EvidenceKind, LimitKey
from serving.workloads import WORKLOAD_TYPES


class RateLimit(serializers.Serializer[Any]):
    """How many calls a minute."""

    key = serializers.ChoiceField([key.value for key in LimitKey])
    calls = serializers.IntegerField()
    principal = serializers.CharField(required=False)
    renewal_period = serializers.CharField()


class RateLimits(serializers.Serializer[Any]):
    rate_limits = RateLimit(many=True)


class AiGateway(serializers.Serializer[Any]):
    """Settings of the AI gateway; those that were not given are absent."""

    rate_limits = RateLimit(many=True, required=False)
    usage_tracking_config = serializers.DictField(required=False)
    inference_table_config = serializers.DictField(required=False)
    guardrails = serializers.DictField(required=False)
    fallback_config = serializers.DictField(required=False)


class Evidence(serializers.Serializer[Any]):
    """A line of a replica's log that proves a part of it."""

    kind = serializers.ChoiceField([kind.value for kind in EvidenceKind])
    title = serializers.CharField()
    text = serializers.CharField()
    line = serializers.IntegerField()
    replica_id = serializers.CharField()
    timestamp = serializers.IntegerField()


class BatchSize(serializers.Serializer[Any]):
    rows = serializers.IntegerField()
    batches = serializers.IntegerField(help_text="Calls of the model with so many rows.")


class RealisedBatching(serializers.Serializer[Any]):
    """What Triton batched in the last minute; all since its start where that minute was quiet."""

    sentence = serializers.CharField(help_text="The figures, read.")
    window_s = serializers.FloatField()
    rows = serializers.IntegerField()
    batches = serializers.IntegerField(help_text="Calls of the model.")
    mean_rows = serializers.FloatField(help_text="Rows a batch.")
    max_batch_size = serializers.IntegerField()
    rows_per_s = serializers.FloatField()
    queue_ms = serializers.FloatField(
        help_text="Mean wait in Triton's queue, without the one in the gateway."
    )
    compute_ms = serializers.FloatField(help_text="Mean time of a batch in the model.")
    distribution = BatchSize(many=True)


class Triton(serializers.Serializer[Any]):
    """What is known about Triton, with its proof."""

    status = serializers.ChoiceField(TritonStatus.values)
    reason_code = serializers.CharField()
    message = serializers.CharField()
    evidence = Evidence(many=True)
    batching = RealisedBatching(allow_null=True)


class BatchingValue(serializers.Serializer[Any]):
    """A value in force and where it came from."""

    value = serializers.JSONField(help_text="A whole number; for preferred_batch_size a list.")
    source = serializers.ChoiceField(  # type: ignore[assignment]  # the API's word
        ["override", "profile", "default"]
    )
    reason = serializers.CharField()


class EntityDeploymentState(serializers.Serializer[Any]):
    deployment = serializers.ChoiceField(EntityState.values)
    deployment_state_message = serializers.CharField()


class _Served(serializers.Serializer[Any]):
    name = serializers.CharField()
    workload_type = serializers.ChoiceField(list(WORKLOAD_TYPES))
    workload_size = serializers.CharField(required=False, help_text="Or the two numbers.")
    min_provisioned_concurrency = serializers.IntegerField(required=False)
    max_provisioned_concurrency = serializers.IntegerField(required=False)
    scale_to_zero_enabled = serializers.BooleanField()
    environment_vars = serializers.DictField(child=serializers.CharField())
    creator = serializers.CharField(allow_null=True)
    creation_timestamp = serializers.IntegerField()
    state = EntityDeploymentState()
    throughput_optimized = serializers.BooleanField()
    batching = Batching(help_text="The overrides.")
    batching_in_force = serializers.DictField(
        child=BatchingValue(), help_text="By setting; empty unless Triton was chosen."
    )
    triton = Triton()


class ServedEntity(_Served):
    """One model version on given compute."""

    entity_name = serializers.CharField()
    entity_version = serializers.CharField()


class ServedModel(_Served):
    """A served entity in the older form."""

    model_name = serializers.CharField()
    model_version = serializers.CharField()


class ShownRoute(serializers.Serializer[Any]):
    served_model_name = serializers.CharField()
    served_entity_name = serializers.CharField()
    traffic_percentage = serializers.IntegerField(min_value=0, max_value=100)


class ShownTrafficConfig(serializers.Serializer[Any]):
    routes = ShownRoute(many=True)


class EndpointConfig(serializers.Serializer[Any]):
    """What an endpoint serves; a number for each config that was accepted."""

    config_version = serializers.IntegerField()
    served_entities = ServedEntity(many=True)
    served_models = ServedModel(many=True)
    traffic_config = ShownTrafficConfig()


class PendingConfig(EndpointConfig):
    """The config that is rolling out, or that failed to."""

    start_time = serializers.IntegerField()


class EndpointState(serializers.Serializer[Any]):
    ready = serializers.ChoiceField(Ready.values)
    config_update = serializers.ChoiceField(ConfigUpdate.values)
    suspend = serializers.ChoiceField(["SUSPENDED", "NOT_SUSPENDED"])
    config_update_message = serializers.CharField()


class EndpointTag(serializers.Serializer[Any]):
    key = serializers.CharField()
    value = serializers.CharField()


class EndpointTagList(serializers.Serializer[Any]):
    tags = EndpointTag(many=True)


class _CommonEndpoint(serializers.Serializer[Any]):
    name = serializers.CharField()
    id = serializers.CharField(help_text="For the calls on permissions.")
    creator = serializers.CharField()
    creation_timestamp = serializers.IntegerField()
    last_updated_timestamp = serializers.IntegerField()
    description = serializers.CharField()
    state = EndpointState()
    tags = EndpointTag(many=True)


class Endpoint(_CommonEndpoint):
    """Everything about one endpoint."""

    permission_level = serializers.ChoiceField(
        PermissionLevel.values, allow_null=True, help_text="The caller's."
    )
    route_optimized = serializers.BooleanField()
    ai_gateway = AiGateway()
    rate_limits = RateLimit(many=True)
    email_notifications = EmailNotifications()
    endpoint_url = serializers.CharField(help_text="Where queries go.")
    config = EndpointConfig(required=False, help_text="Absent until the first success.")
    pending_config = PendingConfig(
        required=False, help_text="Only during an update and after one that failed."
    )


class EntitySummary(serializers.Serializer[Any]):
    name = serializers.CharField()
    entity_name = serializers.CharField()
    entity_version = serializers.CharField()
    throughput_optimized = serializers.BooleanField()


class ModelSummary(serializers.Serializer[Any]):
    name = serializers.CharField()
    model_name = serializers.CharField()
    model_version = serializers.CharField()


class ConfigSummary(serializers.Serializer[Any]):
    served_entities = EntitySummary(many=True)
    served_models = ModelSummary(many=True)


class EndpointSummary(_CommonEndpoint):
    """One endpoint of a list."""

    config = ConfigSummary()


class EndpointList(serializers.Serializer[Any]):
    endpoints = EndpointSummary(many=True)


class NotificationsAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    email_notifications = EmailNotifications()


class EventLine(serializers.Serializer[Any]):
    """A line of an endpoint's time line."""

    id = serializers.IntegerField()
    timestamp = serializers.IntegerField()
    type = serializers.CharField()
    message = serializers.CharField()
    actor = serializers.CharField(allow_null=True)
    served_entity_name = serializers.CharField(allow_null=True)
    replica_id = serializers.CharField(allow_null=True)


class EventList(serializers.Serializer[Any]):
    events = EventLine(many=True)


class Logs(serializers.Serializer[Any]):
    logs = serializers.CharField()


class HeldPermission(serializers.Serializer[Any]):
    permission_level = serializers.ChoiceField(PermissionLevel.values)
    inherited = serializers.BooleanField()
    inherited_from_object = serializers.ListField(child=serializers.CharField(), required=False)


class AccessControlEntry(serializers.Serializer[Any]):
    user_name = serializers.CharField(required=False)
    group_name = serializers.CharField(required=False)
    display_name = serializers.CharField()
    all_permissions = HeldPermission(many=True)


class AccessControl(serializers.Serializer[Any]):
    object_id = serializers.CharField()
    object_type = serializers.CharField()
    access_control_list = AccessControlEntry(many=True)


class PermissionLevelDescription(serializers.Serializer[Any]):
    permission_level = serializers.ChoiceField(PermissionLevel.values)
    description = serializers.CharField()


class PermissionLevels(serializers.Serializer[Any]):
    permission_levels = PermissionLevelDescription(many=True)


PREDICTIONS: dict[str, Any] = {
    "type": "object",
    "properties": {"predictions": {"description": "Rows as lists, or records."}},
    "required": ["predictions"],
}
