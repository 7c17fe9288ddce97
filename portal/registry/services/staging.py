"""Staging: a packed version becomes express, or says why not.

`request_staging` starts it, `stage` (run by a task) does it, `reconcile` does it again where a
worker died. Every step may run twice.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from portal.accounts.models import User
from portal.audit.services import Action
from portal.queue import enqueue
from portal.registry.models import BULKY, Environment, ModelVersion
from portal.registry.services.contents import TARS
from portal.registry.services.models import record_version
from portal.registry.states import FOLLOWS, EnvironmentState, ExpressState, VersionStatus
from portal.rest import InvalidState
from serving.artifacts import EnvironmentStore, compile_bytecode, unpack_model
from serving.errors import ArtifactError
from serving.spec import PythonEnvironment

log = logging.getLogger(__name__)

BEAT_S = 1.0
SILENT_AFTER_S = 30
MAX_ATTEMPTS = 5
SERVER_FAULT = "SERVER_FAULT"


class Abandoned(Exception):
    """The version was deleted, or its state was changed by somebody else, while we worked."""


def store() -> EnvironmentStore:
    """The environment store of this installation."""
    return EnvironmentStore(
        root=Path(settings.ENVIRONMENTS_DIR), python_homes=tuple(settings.PYTHON_HOMES)
    )


# ---------------------------------------------------------------- states


@transaction.atomic
def move_express(
    version: ModelVersion, to: ExpressState, *, reason_code: str = "", message: str = ""
) -> bool:
    """Move the version's staging to `to`; False when another process moved it first.

    Raises:
        ValueError: `to` cannot follow the state it is in.
    """
    came_from = ExpressState(version.express_state)
    if to not in FOLLOWS[came_from]:
        raise ValueError(f"{version} is {came_from}; it cannot become {to}.")
    now = timezone.now()
    changes = {
        "express_state": to,
        "express_reason_code": reason_code,
        "express_message": message,
        "express_since": now,
        "staging_beat_at": now if to == ExpressState.STAGING else None,
        "updated_at": now,
    }
    if to == ExpressState.STAGING:
        changes["staging_attempts"] = 1
    won = ModelVersion.objects.filter(pk=version.pk, express_state=came_from).update(**changes)
    if won:
        for field, value in changes.items():
            setattr(version, field, value)
        log.info("%s: staging %s -> %s %s %s", version, came_from, to, reason_code, message)
    return bool(won)


# ---------------------------------------------------------------- asking for it


def request_staging(version: ModelVersion, by: User | None = None) -> None:
    """Start staging in the background, unless it runs or its result is still there.

    Args:
        version: The version.
        by: The person who asked for it; None where a deployment needs it.

    Raises:
        InvalidState: The version is not READY, or was registered without its environment.
    """
    if version.status != VersionStatus.READY:
        raise InvalidState(f"{version} is {version.status}; only READY versions can be staged.")
    if not version.is_packed:
        raise InvalidState(
            f"{version} was registered without its environment. Register it with "
            'env_pack="databricks_model_serving" to make it express.'
        )
    if version.express_state == ExpressState.STAGING or is_staged(version):
        return
    with transaction.atomic():
        if move_express(version, ExpressState.STAGING, message="Waiting for a worker"):
            enqueue("registry.stage_version", version.pk)
            if by is not None:
                record_version(Action.VERSION_STAGE, version, by)


def is_staged(version: ModelVersion) -> bool:
    """Whether the version is express and all that it needs is really on the disk."""
    return (
        version.express_state == ExpressState.STAGED
        and version.environment is not None
        and store().find(version.environment.content_hash) is not None
        and (version.model_directory / "MLmodel").is_file()
    )


# ---------------------------------------------------------------- doing it


def stage(version_pk: int) -> None:
    """Unpack and check a version's model and environment; record STAGED, or FAILED with a reason.

    It may run twice at once: the work is done once, and both find it done.
    """
    version = _staging_version(version_pk)
    if version is None:
        return
    progress = _Beat(version)
    try:
        environment = _stage(version, progress)
    except Abandoned:
        log.info("%s: staging was abandoned", version)
    except ArtifactError as exc:
        _fail(version, progress.held, exc.reason_code, exc.message)
    except OSError as exc:
        log.exception("%s: staging failed", version)
        _fail(version, progress.held, SERVER_FAULT, disk_trouble(exc))
    else:
        _compile(version, environment)


def _staging_version(version_pk: int) -> ModelVersion | None:
    return (
        ModelVersion.objects.select_related("model", "environment")
        .defer(*BULKY)
        .filter(pk=version_pk, express_state=ExpressState.STAGING)
        .first()
    )


def _stage(version: ModelVersion, progress: _Beat) -> PythonEnvironment:
    folder = version.files_directory
    unpack_model(folder / TARS[0], version.model_directory, progress)
    started = time.monotonic()
    content_hash, environment = store().stage(folder / TARS[1], progress, hold=progress.hold)
    row = record_environment(content_hash, environment)
    with transaction.atomic():
        is_ours = move_express(
            version,
            ExpressState.STAGED,
            message=f"Checked in {time.monotonic() - started:.0f} s: Python "
            f"{environment.python_version}, {row.size_bytes / 2**20:.0f} MiB.",
        )
        if not is_ours:
            raise Abandoned
        ModelVersion.objects.filter(pk=version.pk).update(environment=row)
    return environment


def _fail(version: ModelVersion, held: str, reason_code: str, message: str) -> None:
    move_express(version, ExpressState.FAILED, reason_code=reason_code, message=message)
    fail_environment(held)


def _compile(version: ModelVersion, environment: PythonEnvironment) -> None:
    """Bytecode makes later starts faster; the version is express without it."""
    started = time.monotonic()
    compile_bytecode(environment, lambda _: None)
    log.info("%s: bytecode written in %.0f s", version, time.monotonic() - started)


class _Beat:
    """Tells the database once a second what is being done, and that the worker lives."""

    def __init__(self, version: ModelVersion) -> None:
        self.version = version
        self.told_at = 0.0
        self.held = ""  # the environment that is being prepared

    def hold(self, content_hash: str) -> None:
        self.held = content_hash
        hold_environment(content_hash, is_built_here=False)

    def __call__(self, message: str) -> None:
        now = time.monotonic()
        if now - self.told_at < BEAT_S:
            return
        self.told_at = now
        still_ours = ModelVersion.objects.filter(
            pk=self.version.pk, express_state=ExpressState.STAGING
        ).update(express_message=message, staging_beat_at=timezone.now())
        if not still_ours:
            raise Abandoned


# ---------------------------------------------------------------- environments


def hold_environment(content_hash: str, *, is_built_here: bool) -> None:
    """Note that an environment is wanted, before it is made or used; its lock is held."""
    Environment.objects.update_or_create(
        content_hash=content_hash,
        defaults={"last_used_at": timezone.now()},
        create_defaults={"last_used_at": timezone.now(), "is_built_here": is_built_here},
    )


def fail_environment(content_hash: str) -> None:
    """Note that an environment could not be prepared, unless another attempt has done it."""
    Environment.objects.filter(content_hash=content_hash, state=EnvironmentState.PREPARING).update(
        state=EnvironmentState.FAILED
    )


def as_engine_value(row: Environment) -> PythonEnvironment | None:
    """The environment as the engine takes it; None when it is not on the disk."""
    return store().find(row.content_hash)


def disk_trouble(exc: OSError) -> str:
    """What to tell of a fault of ours."""
    return (
        f"Sorry, the server could not read or write a file: {exc.strerror or 'unknown trouble'}. "
        "Try again; if it stays, ask an admin to look at the server's log."
    )


def record_environment(content_hash: str, environment: PythonEnvironment) -> Environment:
    """Note that an environment is ready, and what was found in it."""
    row, _ = Environment.objects.update_or_create(
        content_hash=content_hash,
        defaults={
            "state": EnvironmentState.READY,
            "python_version": environment.python_version,
            "base_prefix": str(environment.base_prefix),
            "libpython": str(environment.libpython or ""),
            "size_bytes": store().size_bytes(content_hash),
            "last_used_at": timezone.now(),
        },
    )
    return row
