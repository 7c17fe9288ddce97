"""Endpoints, their numbered configs, the deployments of these, and the replicas that run.

What is wanted (configs) and what is seen (replicas) are apart; `services.reconcile` moves the
second towards the first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from portal.endpoints.states import (
    ConfigUpdate,
    DeploymentState,
    EntityState,
    PermissionLevel,
    Ready,
    ReplicaPurpose,
    ReplicaState,
    StepName,
    StepState,
)
from portal.registry.models import ModelVersion

if TYPE_CHECKING:
    from datetime import datetime

    from portal.accounts.models import User


class EndpointQuerySet(models.QuerySet["Endpoint"]):
    def existing(self) -> EndpointQuerySet:
        """Endpoints that are not being deleted."""
        return self.filter(is_deleting=False)

    def visible_to(self, user: User) -> EndpointQuerySet:
        """Existing endpoints on which `user` has at least CAN VIEW."""
        if user.is_workspace_admin:
            return self.existing()
        return (
            self.existing()
            .filter(
                models.Q(creator=user)
                | models.Q(permissions__user=user)
                | models.Q(permissions__group_name__in=user.group_names)
            )
            .distinct()
        )


class Endpoint(models.Model):
    """The named, routable thing."""

    public_id = models.CharField(max_length=32, unique=True)  # hex, as the API's `id`
    name = models.CharField(max_length=63, unique=True)
    description = models.TextField(blank=True)
    creator = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="endpoints"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    ready = models.CharField(max_length=16, choices=Ready.choices, default=Ready.NOT_READY)
    ready_since = models.DateTimeField(db_default=Now())
    config_update = models.CharField(
        max_length=20, choices=ConfigUpdate.choices, default=ConfigUpdate.NOT_UPDATING
    )
    config_update_message = models.TextField(blank=True)  # why it failed or was canceled
    is_stopped = models.BooleanField(default=False)
    is_deleting = models.BooleanField(default=False)  # hidden; its replicas are being stopped
    last_config_version = models.PositiveIntegerField(default=0)
    email_notifications = models.JSONField(default=dict)  # on_update_success, on_update_failure
    rate_limits = models.JSONField(default=list)  # the older call; the newer stands in ai_gateway
    ai_gateway = models.JSONField(default=dict)  # as put
    active_config = models.ForeignKey(
        "EndpointConfig", null=True, on_delete=models.PROTECT, related_name="+"
    )
    # While updating, and kept after a failed update.
    pending_config = models.ForeignKey(
        "EndpointConfig", null=True, on_delete=models.PROTECT, related_name="+"
    )

    if TYPE_CHECKING:
        ready_since: datetime  # type: ignore[no-redef]  # db_default is typed as an expression

        creator_id: int
        active_config_id: int | None
        pending_config_id: int | None

    objects = EndpointQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_updating(self) -> bool:
        """Whether a config is rolling out."""
        return self.config_update == ConfigUpdate.IN_PROGRESS


class Operation(models.Model):
    """An endpoint was created or updated; too many of these in a while make the next one wait."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)

    def __str__(self) -> str:
        return f"{self.at}"


class EndpointTag(models.Model):
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="tags")
    key = models.CharField(max_length=255)
    value = models.CharField(max_length=1024, blank=True)

    class Meta:
        ordering = ["key"]
        constraints = [
            models.UniqueConstraint(fields=["endpoint", "key"], name="one_endpoint_tag_a_key")
        ]

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


class EndpointPermission(models.Model):
    """A level granted to a user or to a group (by name); the creator and admins manage anyway."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="permissions")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+"
    )
    group_name = models.CharField(max_length=150, blank=True)
    level = models.CharField(max_length=16, choices=PermissionLevel.choices)

    if TYPE_CHECKING:
        user_id: int | None

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint", "user"],
                condition=models.Q(user__isnull=False),
                name="one_level_a_user",
            ),
            models.UniqueConstraint(
                fields=["endpoint", "group_name"],
                condition=models.Q(user__isnull=True),
                name="one_level_a_group",
            ),
            models.CheckConstraint(
                condition=models.Q(user=None) ^ models.Q(group_name=""), name="user_or_group"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user or self.group_name} {self.level}"


class EndpointConfig(models.Model):
    """An immutable, numbered set of served entities and their shares of the traffic."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="configs")
    version = models.PositiveIntegerField()
    creator = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["endpoint", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["endpoint", "version"], name="one_config_a_number")
        ]

    def __str__(self) -> str:
        return f"{self.endpoint.name} config {self.version}"


class ServedEntity(models.Model):
    """One model version on given compute in a config."""

    config = models.ForeignKey(EndpointConfig, on_delete=models.CASCADE, related_name="entities")
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=63)
    entity_name = models.CharField(max_length=255)  # as asked; outlives the model version
    entity_version = models.CharField(max_length=16)
    model_version = models.ForeignKey(
        ModelVersion, null=True, on_delete=models.SET_NULL, related_name="served_entities"
    )
    workload_type = models.CharField(max_length=32, default="CPU")
    workload_size = models.CharField(max_length=16, blank=True)  # empty: Custom
    min_provisioned_concurrency = models.PositiveIntegerField(default=4)
    max_provisioned_concurrency = models.PositiveIntegerField(default=4)
    scale_to_zero_enabled = models.BooleanField(default=False)
    throughput_optimized = models.BooleanField(default=False)
    environment_vars = models.JSONField(default=dict)  # as asked: secrets stay references
    batching = models.JSONField(default=dict)  # overrides, Triton's keys
    traffic_percentage = models.PositiveSmallIntegerField(default=100)
    creator = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    state = models.CharField(
        max_length=24, choices=EntityState.choices, default=EntityState.DEPLOYMENT_CREATING
    )
    state_message = models.TextField(blank=True)
    state_since = models.DateTimeField(db_default=Now())

    if TYPE_CHECKING:
        state_since: datetime  # type: ignore[no-redef]  # db_default is typed as an expression
        config_id: int
        creator_id: int | None
        model_version_id: int | None

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["config", "name"], name="one_entity_a_name")]

    def __str__(self) -> str:
        return self.name


class Deployment(models.Model):
    """One attempt to make a config version live."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="deployments")
    config = models.ForeignKey(EndpointConfig, on_delete=models.CASCADE, related_name="deployments")
    state = models.CharField(
        max_length=16, choices=DeploymentState.choices, default=DeploymentState.QUEUED
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    failed_step = models.CharField(max_length=16, choices=StepName.choices, blank=True)
    error_code = models.CharField(max_length=64, blank=True)
    message = models.TextField(blank=True)  # what failed and what to do
    log_excerpt = models.TextField(blank=True)  # the last lines of the replica that failed
    beat_at = models.DateTimeField(null=True)  # the task that advances it lives
    owner = models.CharField(max_length=64, blank=True)  # that task's id

    if TYPE_CHECKING:
        endpoint_id: int
        config_id: int

    class Meta:
        ordering = ["-pk"]
        constraints = [
            # One update at a time.
            models.UniqueConstraint(
                fields=["endpoint"],
                condition=models.Q(state__in=[DeploymentState.QUEUED, DeploymentState.RUNNING]),
                name="one_deployment_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return f"{self.endpoint.name} deployment {self.pk}"


class DeploymentStep(models.Model):
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="steps")
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=16, choices=StepName.choices)
    state = models.CharField(max_length=16, choices=StepState.choices, default=StepState.WAITING)
    message = models.TextField(blank=True)  # what it waits for, what it found
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["deployment", "name"], name="one_step_a_name")
        ]

    def __str__(self) -> str:
        return self.get_name_display()


class Profile(models.Model):
    """The measurements of a model version on one device; deployments share it."""

    model_version = models.ForeignKey(ModelVersion, models.CASCADE, related_name="profiles")
    device_key = models.CharField(max_length=120)  # "cpu-emulation:2 cores", "cuda:NVIDIA H200"
    data = models.JSONField()  # serving.tuning.profile.Profile
    is_outdated = models.BooleanField(default=False)  # the next deployment measures again
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint("model_version", "device_key", name="one_profile_a_device")
        ]

    def __str__(self) -> str:
        return f"{self.model_version} on {self.device_key}"


class BackendDecision(models.Model):
    """Which backend a deployment chose for a served entity, and why; kept for each deployment."""

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="decisions")
    entity = models.ForeignKey(ServedEntity, on_delete=models.CASCADE, related_name="decisions")
    backend = models.CharField(max_length=16)  # serving.spec.Backend
    reason_code = models.CharField(max_length=64)  # serving.eligibility.ReasonCode
    message = models.TextField()
    rules = models.JSONField(default=list)  # each rule's outcome, as shown in the form
    batching = models.JSONField(default=dict)  # serving.spec.Batching in force
    batching_reasons = models.JSONField(default=dict)  # a sentence for each of its fields
    profile = models.ForeignKey(Profile, null=True, on_delete=models.SET_NULL, related_name="+")
    profiling = models.JSONField(default=dict)  # serving.tuning.policy.Progress while measuring
    decided_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["deployment", "entity"], name="one_decision_an_entity")
        ]

    def __str__(self) -> str:
        return f"{self.entity.name}: {self.backend}"


class Replica(models.Model):
    """One running server for one served entity; `public_id` stands in the log prefix."""

    public_id = models.CharField(max_length=8, unique=True)
    entity = models.ForeignKey(ServedEntity, on_delete=models.CASCADE, related_name="replicas")
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="replicas")
    backend = models.CharField(max_length=16)  # serving.spec.Backend
    device = models.CharField(max_length=32)  # "cpu", "cpu-emulation", "cuda:0"
    purpose = models.CharField(
        max_length=16, choices=ReplicaPurpose.choices, default=ReplicaPurpose.SERVE
    )
    batching = models.JSONField(default=dict)  # of one that is measured; others: their decision's
    is_wanted = models.BooleanField(default=True)  # False: to be drained and stopped
    launched_at = models.DateTimeField(null=True)  # claimed by whoever launches it
    state = models.CharField(
        max_length=16, choices=ReplicaState.choices, default=ReplicaState.LAUNCHING
    )
    state_since = models.DateTimeField(db_default=Now())
    message = models.TextField(blank=True)
    address = models.CharField(max_length=255, blank=True)
    metrics_address = models.CharField(max_length=255, blank=True)
    restarts = models.PositiveIntegerField(default=0)
    exit_code = models.IntegerField(null=True)
    evidence = models.JSONField(default=list)  # serving.spec.Evidence
    seen_at = models.DateTimeField(null=True)  # last beat
    ready_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    if TYPE_CHECKING:
        state_since: datetime  # type: ignore[no-redef]  # db_default is typed as an expression

    class Meta:
        ordering = ["pk"]
        indexes = [
            # The reconciler's query: what should run.
            models.Index(
                fields=["entity"], condition=models.Q(is_wanted=True), name="wanted_replicas"
            )
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def directory(self) -> Path:
        """The replica's own folder: spec, status, logs, model repository."""
        return Path(settings.REPLICAS_DIR) / self.public_id


class Event(models.Model):
    """A line of the endpoint's time line."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(auto_now_add=True)
    kind = models.CharField(max_length=64)  # "endpoint_created", "deployment_failed", ...
    message = models.TextField()
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    deployment = models.ForeignKey(
        Deployment, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    entity_name = models.CharField(max_length=63, blank=True)
    replica_id = models.CharField(max_length=8, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["endpoint", "-id"], name="events_newest_first")]

    def __str__(self) -> str:
        return self.message
