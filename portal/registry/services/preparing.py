"""Prepare a version to be served: express versions are staged, for others an environment is built.

A deploy asks `ensure_prepared` again each second until it is ready or has failed.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from portal.queue import enqueue
from portal.registry.models import BULKY, Environment, ModelVersion
from portal.registry.services.staging import (
    SERVER_FAULT,
    Abandoned,
    as_engine_value,
    disk_trouble,
    fail_environment,
    hold_environment,
    is_staged,
    record_environment,
    request_staging,
    store,
)
from portal.registry.states import ExpressState, VersionStatus
from serving.artifacts import (
    build_environment,
    build_key,
    compile_bytecode,
    complete_requirements,
    link_model,
    minor_version,
)
from serving.errors import ArtifactError
from serving.spec import PythonEnvironment

log = logging.getLogger(__name__)

BUILDS_QUEUE = "builds"
SILENT_AFTER_S = 30
FAILURE_STANDS_S = 60  # a later deploy tries again
BEAT_S = 1.0
LOG_SHOWN_BYTES = 2 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How far a version is from being served.

    Attributes:
        message: What is being done, or why it failed and what to do.
        reason_code: Why it failed; "" otherwise.
        environment: When ready: the environment that runs the model.
        model_directory: When ready: the folder that holds its MLmodel.
    """

    state: Literal["ready", "working", "failed"]
    message: str
    reason_code: str = ""
    environment: PythonEnvironment | None = None
    model_directory: Path | None = None


def ensure_prepared(version: ModelVersion) -> Preparation:
    """Say whether a version can be served, and start what is missing; never waits.

    An express version is ready once it is staged. Where there is no packed environment, or its
    staging failed, one is built from the model's requirements.
    """
    version = (
        ModelVersion.objects.select_related("model", "environment").defer(*BULKY).get(pk=version.pk)
    )
    if version.status != VersionStatus.READY:
        return Preparation(
            state="failed",
            reason_code="NOT_READY",
            message=f"{version} is {version.status}; only READY versions can be served.",
        )
    if version.is_packed and version.express_state != ExpressState.FAILED:
        return _staged(version)
    return _built(version)


def _staged(version: ModelVersion) -> Preparation:
    if is_staged(version):
        return _ready(version, version.express_message)
    request_staging(version)
    return Preparation(state="working", message=version.express_message)


def _ready(version: ModelVersion, message: str) -> Preparation:
    row = version.environment
    environment = as_engine_value(row) if row is not None else None
    if environment is None:
        return Preparation(state="working", message="The environment is being prepared again")
    return Preparation(
        state="ready",
        message=message,
        environment=environment,
        model_directory=version.model_directory,
    )


def _built(version: ModelVersion) -> Preparation:
    if is_built(version):
        return _ready(version, version.build_message)
    now = timezone.now()
    failed_at = version.build_failed_at
    if failed_at is not None and failed_at > now - timedelta(seconds=FAILURE_STANDS_S):
        return Preparation(
            state="failed", message=version.build_message, reason_code=version.build_reason_code
        )
    silent = Q(build_beat_at=None) | Q(build_beat_at__lt=now - timedelta(seconds=SILENT_AFTER_S))
    is_ours = (
        ModelVersion.objects.filter(silent, pk=version.pk)
        .exclude(build_failed_at__gt=now - timedelta(seconds=FAILURE_STANDS_S))
        .update(
            build_beat_at=now,
            build_failed_at=None,
            build_reason_code="",
            build_message="Waiting for a worker that builds environments",
        )
    )
    if is_ours:
        version.refresh_from_db(fields=["build_message"])
        enqueue("registry.build_environment", version.pk, queue=BUILDS_QUEUE)
    return Preparation(state="working", message=version.build_message)


def is_built(version: ModelVersion) -> bool:
    """Whether an environment was built for the version and all is on the disk."""
    row = version.environment
    return (
        row is not None
        and row.is_built_here
        and as_engine_value(row) is not None
        and (version.model_directory / "MLmodel").is_file()
    )


# ---------------------------------------------------------------- doing it


def build(version_pk: int) -> None:
    """Build the environment of a version from its requirements, and bring its files in place.

    It may run twice at once: the work is done once, and both find it done.
    """
    version = (
        ModelVersion.objects.select_related("model", "environment")
        .defer(*BULKY)
        .filter(pk=version_pk, status=VersionStatus.READY)
        .first()
    )
    if version is None or is_built(version):
        return
    progress = _BuildBeat(version)
    try:
        row = _build(version, progress)
    except Abandoned:
        log.info("%s: the build was abandoned", version)
    except ArtifactError as exc:
        _fail(version, progress.held, exc.reason_code, exc.message)
    except OSError as exc:
        log.exception("%s: the build failed", version)
        _fail(version, progress.held, SERVER_FAULT, disk_trouble(exc))
    else:
        log.info("%s: built %s", version, row)
        environment = as_engine_value(row)
        if environment is not None:
            compile_bytecode(environment, lambda _: None)


def _build(version: ModelVersion, progress: _BuildBeat) -> Environment:
    started = time.monotonic()
    link_model(version.files_directory, version.model_directory, progress)
    python_version, requirements, key = _plan(version)
    environment = build_environment(
        store(),
        key=key,
        interpreter=store().interpreter(python_version),
        requirements=requirements,
        model_directory=version.model_directory,
        log_file=_log_file(key),
        progress=progress,
        hold=progress.hold,
    )
    row = record_environment(key, environment)
    ModelVersion.objects.filter(pk=version.pk).exclude(express_state=ExpressState.STAGED).update(
        environment=row,
        build_beat_at=None,
        build_failed_at=None,
        build_reason_code="",
        build_message=f"Built from the model's requirements in {time.monotonic() - started:.0f} s",
    )
    return row


def _plan(version: ModelVersion) -> tuple[str, str, str]:
    """Python's minor version, the requirements, and the name of the environment they lead to."""
    python_version = minor_version(version.python_version)
    if not python_version:
        raise ArtifactError(
            "PYTHON_NOT_AVAILABLE",
            "MLmodel does not say which Python the model was logged with. "
            "Log it as a pyfunc model.",
        )
    requirements = complete_requirements(version.requirements, version.mlflow_version)
    return (
        python_version,
        requirements,
        build_key(requirements, python_version, model=str(version.pk)),
    )


def _fail(version: ModelVersion, held: str, reason_code: str, message: str) -> None:
    ModelVersion.objects.filter(pk=version.pk).update(
        build_beat_at=None,
        build_failed_at=timezone.now(),
        build_reason_code=reason_code,
        build_message=message,
    )
    fail_environment(held)
    log.warning("%s: the build failed: %s %s", version, reason_code, message)


class _BuildBeat:
    """Tells the database once a second what is being done, and that the worker lives."""

    def __init__(self, version: ModelVersion) -> None:
        self.version = version
        self.told_at = 0.0
        self.held = ""

    def hold(self, content_hash: str) -> None:
        self.held = content_hash
        hold_environment(content_hash, is_built_here=True)

    def __call__(self, message: str) -> None:
        now = time.monotonic()
        if now - self.told_at < BEAT_S:
            return
        self.told_at = now
        if not ModelVersion.objects.filter(pk=self.version.pk).update(
            build_message=message, build_beat_at=timezone.now()
        ):
            raise Abandoned


# ---------------------------------------------------------------- the log


def _log_file(key: str) -> Path:
    return Path(settings.BUILD_LOGS_DIR) / f"{key}.log"


def build_log(version: ModelVersion) -> str:
    """What building or staging the version's environment said; its end, where it is long."""
    if version.is_packed and version.express_state != ExpressState.FAILED:
        return (
            "Express: the environment was packed when the model was registered, nothing is built.\n"
            f"{version.get_express_state_display()}: {version.express_message}\n"
        )
    try:
        file = _log_file(_plan(version)[2])
        with file.open("rb") as log_file:
            size = log_file.seek(0, 2)
            log_file.seek(max(0, size - LOG_SHOWN_BYTES))
            text = log_file.read().decode(errors="replace").replace("\x00", "")
    except (OSError, ArtifactError):
        text = ""
    if version.build_message:
        text += f"{version.build_message}\n"
    return text
