"""Registered models, their versions and files, and the environments that versions share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from portal.registry.states import EnvironmentState, ExpressState, VersionStatus

if TYPE_CHECKING:
    from datetime import datetime

    from portal.accounts.models import User


BULKY = ("input_example",)
"""Fields of a version that may hold megabytes; defer them where they are not needed."""


class RegisteredModelQuerySet(models.QuerySet["RegisteredModel"]):
    def readable_by(self, user: User) -> RegisteredModelQuerySet:
        """Models that are there for `user`."""
        if user.is_workspace_admin:
            return self.all()
        listed = ModelReader.objects.filter(model=models.OuterRef("pk")).filter(
            models.Q(user=user) | models.Q(group_name__in=user.group_names)
        )
        return self.filter(
            models.Q(is_restricted=False) | models.Q(owner=user) | models.Exists(listed)
        )


class RegisteredModel(models.Model):
    """`catalog.schema.model`."""

    name = models.CharField(max_length=255, unique=True)
    description = models.TextField(blank=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="registered_models"
    )
    is_restricted = models.BooleanField(default=False)  # only owner, admins and `readers` read
    last_version = models.PositiveIntegerField(default=0)  # numbers are never given twice
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    if TYPE_CHECKING:
        owner_id: int

    objects = RegisteredModelQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def short_name(self) -> str:
        """The last of the three levels."""
        return self.name.rpartition(".")[2]


class ModelReader(models.Model):
    """A user or a group (by name) that reads a restricted model."""

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="readers")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+"
    )
    group_name = models.CharField(max_length=150, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["model", "user"],
                condition=models.Q(user__isnull=False),
                name="one_reading_a_user",
            ),
            models.UniqueConstraint(
                fields=["model", "group_name"],
                condition=models.Q(user__isnull=True),
                name="one_reading_a_group",
            ),
            models.CheckConstraint(
                condition=models.Q(user=None) ^ models.Q(group_name=""),
                name="reader_is_user_or_group",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user or self.group_name} reads {self.model}"


class RegisteredModelTag(models.Model):
    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="tags")
    key = models.CharField(max_length=255)
    value = models.TextField(blank=True)

    class Meta:
        ordering = ["key"]
        constraints = [models.UniqueConstraint(fields=["model", "key"], name="one_model_tag_a_key")]

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


class Environment(models.Model):
    """An unpacked (or built) Python environment, one however many versions share it.

    Its folder is `settings.ENVIRONMENTS_DIR / content_hash`; the row holds what was found there.
    """

    content_hash = models.CharField(max_length=80, unique=True)
    state = models.CharField(
        max_length=16, choices=EnvironmentState.choices, default=EnvironmentState.PREPARING
    )
    python_version = models.CharField(max_length=16, blank=True)  # "3.11"
    base_prefix = models.CharField(max_length=1024, blank=True)
    libpython = models.CharField(max_length=1024, blank=True)
    size_bytes = models.BigIntegerField(default=0)
    is_built_here = models.BooleanField(
        default=False
    )  # from requirements, not packed by the client
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.content_hash[:12]

    @property
    def directory(self) -> Path:
        """Where it lies."""
        return Path(settings.ENVIRONMENTS_DIR) / self.content_hash


class ModelVersionQuerySet(models.QuerySet["ModelVersion"]):
    def readable_by(self, user: User) -> ModelVersionQuerySet:
        """Versions of models that are there for `user`."""
        if user.is_workspace_admin:
            return self.all()
        return self.filter(model__in=RegisteredModel.objects.readable_by(user))


class ModelVersion(models.Model):
    """One registered, stored artefact; `version` counts from 1 in each model."""

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="versions")
    version = models.PositiveIntegerField()
    creator = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    description = models.TextField(blank=True)
    source = models.TextField(blank=True)  # a path on the client's machine: shown, never opened
    run_id = models.CharField(max_length=255, blank=True)
    logged_model_id = models.CharField(max_length=255, blank=True)  # `model_id` on the wire
    status = models.CharField(
        max_length=32, choices=VersionStatus.choices, default=VersionStatus.PENDING_REGISTRATION
    )
    status_message = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    # Read from MLmodel and its neighbours when the version is finalized.
    size_bytes = models.BigIntegerField(default=0)
    mlflow_version = models.CharField(max_length=32, blank=True)
    python_version = models.CharField(max_length=32, blank=True)  # "3.11.7"
    databricks_runtime = models.CharField(max_length=64, blank=True)  # "client.5-gpu"
    entrypoint = models.TextField(blank=True)  # metadata.entrypoint: a custom server command
    requirements = models.TextField(blank=True)
    signature = models.JSONField(null=True)  # ModelSignature.to_dict(): values are JSON texts
    input_example = models.JSONField(null=True)  # a serving request body
    is_packed = models.BooleanField(default=False)  # both tars are there

    # Staging.
    express_state = models.CharField(
        max_length=16, choices=ExpressState.choices, default=ExpressState.NOT_STAGED
    )
    express_reason_code = models.CharField(max_length=64, blank=True)
    express_message = models.TextField(blank=True)  # progress while staging, the reason when failed
    express_since = models.DateTimeField(db_default=Now())
    staging_beat_at = models.DateTimeField(
        null=True
    )  # a staging task that went silent is sent again
    staging_attempts = models.PositiveSmallIntegerField(default=0)  # since it was last asked for
    # The packed environment once staged, else the one built from the requirements.
    environment = models.ForeignKey(
        Environment, null=True, on_delete=models.PROTECT, related_name="versions"
    )

    # Building an environment from the requirements, for versions that are not express.
    build_reason_code = models.CharField(max_length=64, blank=True)
    build_message = models.TextField(blank=True)  # progress while building, the reason when failed
    build_beat_at = models.DateTimeField(null=True)  # the task that builds lives
    build_failed_at = models.DateTimeField(null=True)

    if TYPE_CHECKING:
        express_since: datetime  # type: ignore[no-redef]  # db_default is typed as an expression
        creator_id: int

    objects = ModelVersionQuerySet.as_manager()

    class Meta:
        ordering = ["model", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["model", "version"], name="one_version_a_number")
        ]

    def __str__(self) -> str:
        return f"{self.model.name} version {self.version}"

    @property
    def files_directory(self) -> Path:
        """Where the client's files lie."""
        return Path(settings.FILES_DIR, "Models", *self.model.name.split("."), str(self.version))

    @property
    def model_directory(self) -> Path:
        """Where the unpacked model lies once it is staged (or was built for)."""
        return Path(settings.MODELS_DIR) / str(self.pk)

    @property
    def is_packed_for_cpu(self) -> bool:
        """Whether the packed environment comes from a runtime without a GPU."""
        return bool(self.databricks_runtime) and not self.databricks_runtime.endswith("-gpu")


class ModelVersionTag(models.Model):
    model_version = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, related_name="tags")
    key = models.CharField(max_length=255)
    value = models.TextField(blank=True)

    class Meta:
        ordering = ["key"]
        constraints = [
            models.UniqueConstraint(fields=["model_version", "key"], name="one_version_tag_a_key")
        ]

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


class ModelAlias(models.Model):
    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="aliases")
    alias = models.CharField(max_length=255)
    model_version = models.ForeignKey(
        ModelVersion, on_delete=models.CASCADE, related_name="aliases"
    )

    class Meta:
        ordering = ["alias"]
        constraints = [models.UniqueConstraint(fields=["model", "alias"], name="one_alias_a_model")]

    def __str__(self) -> str:
        return self.alias


class UploadSession(models.Model):
    """A multipart upload; its parts are kept in the folder `UPLOADS_DIR / token` until it ends."""

    token = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    path = models.TextField()  # "Models/main/default/m/1/model.pkl"
    overwrite = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    completed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.path
