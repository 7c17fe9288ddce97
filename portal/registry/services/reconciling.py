"""Mend what was interrupted, and clear away what nobody needs any more."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from portal.queue import enqueue
from portal.registry.models import Environment, ModelVersion, UploadSession
from portal.registry.services import parts
from portal.registry.services.finalizing import expire_version
from portal.registry.services.models import discard
from portal.registry.services.staging import MAX_ATTEMPTS, SILENT_AFTER_S, move_express
from portal.registry.states import ExpressState, VersionStatus
from serving.artifacts import collect, remove_tree

log = logging.getLogger(__name__)


def reconcile() -> None:
    """One round of everything; each step may run twice and at once with others."""
    restart_silent_stagings()
    expire_uploads()
    collect_environments()
    collect_models()


def restart_silent_stagings() -> None:
    """Send the staging of versions again whose worker was killed; give up after a few times."""
    limit = timezone.now() - timedelta(seconds=SILENT_AFTER_S)
    silent = ModelVersion.objects.select_related("model").filter(
        Q(staging_beat_at=None) | Q(staging_beat_at__lt=limit), express_state=ExpressState.STAGING
    )
    for version in silent:
        if version.staging_attempts >= MAX_ATTEMPTS:
            move_express(
                version,
                ExpressState.FAILED,
                reason_code="INTERRUPTED",
                message=f"Staging was interrupted {MAX_ATTEMPTS} times; the worker may run out of "
                "memory. Ask an admin to look at the server, then stage the version again.",
            )
            continue
        with transaction.atomic():
            won = ModelVersion.objects.filter(
                pk=version.pk,
                express_state=ExpressState.STAGING,
                staging_beat_at=version.staging_beat_at,
            ).update(staging_beat_at=timezone.now(), staging_attempts=F("staging_attempts") + 1)
            if won:
                log.warning("%s: staging went silent and is started again", version)
                enqueue("registry.stage_version", version.pk)


# ---------------------------------------------------------------- uploads


def expire_uploads() -> None:
    """Give up versions that were never finalized, and sessions that were never completed."""
    limit = timezone.now() - timedelta(seconds=settings.UPLOAD_EXPIRES_S)
    pending = ModelVersion.objects.select_related("model").filter(
        status=VersionStatus.PENDING_REGISTRATION, created_at__lt=limit
    )
    for version in pending:
        if _newest(version.files_directory) < limit.timestamp() and expire_version(version):
            log.info("%s: its upload was never finished", version)
            discard(version.files_directory)
    for session in UploadSession.objects.filter(created_at__lt=limit):
        if _newest(parts.folder_of(session.token)) < limit.timestamp():
            session.delete()
            parts.remove_folder(session.token)
    folder = Path(settings.UPLOADS_DIR)
    for left_over in folder.iterdir() if folder.is_dir() else ():
        if UploadSession.objects.filter(token=left_over.name).exists():
            continue
        if _newest(left_over) < limit.timestamp():
            remove_tree(left_over)


def _newest(path: Path) -> float:
    """The latest change at or below `path`, in seconds since 1970; 0 when it is gone."""
    newest = 0.0
    for found in (path, *(path.rglob("*") if path.is_dir() else ())):
        try:
            newest = max(newest, found.lstat().st_mtime)
        except FileNotFoundError:
            continue
    return newest


# ---------------------------------------------------------------- environments and models


def collect_environments() -> None:
    """Remove environments that no version and no replica uses, after a grace time."""
    collect(Path(settings.ENVIRONMENTS_DIR), partial(_keep_environment, _used_by_replicas()))
    limit = timezone.now() - timedelta(seconds=settings.STORE_GRACE_S)
    for row in Environment.objects.filter(versions=None, last_used_at__lt=limit):
        if not row.directory.exists():
            _unused(row.content_hash).delete()


def _unused(content_hash: str) -> QuerySet[Environment]:
    limit = timezone.now() - timedelta(seconds=settings.STORE_GRACE_S)
    return Environment.objects.filter(
        content_hash=content_hash, versions=None, last_used_at__lt=limit
    )


def _keep_environment(used: frozenset[str], content_hash: str) -> bool:
    directory = Path(settings.ENVIRONMENTS_DIR) / content_hash
    if str(directory) in used:
        return True
    if not Environment.objects.filter(content_hash=content_hash).exists():
        return _is_young(directory)
    if not _unused(content_hash).exists():
        return True
    log.info("environment %s is not used any more and goes", content_hash[:12])
    _unused(content_hash).delete()
    return False


def collect_models() -> None:
    """Remove unpacked models of deleted versions that no replica uses, after a grace time."""
    collect(Path(settings.MODELS_DIR), partial(_keep_model, _used_by_replicas()))


def _keep_model(used: frozenset[str], name: str) -> bool:
    directory = Path(settings.MODELS_DIR) / name
    if str(directory) in used or _is_young(directory):
        return True
    return name.isdecimal() and ModelVersion.objects.filter(pk=int(name)).exists()


def _is_young(directory: Path) -> bool:
    try:
        changed = directory.lstat().st_mtime
    except FileNotFoundError:
        return False
    return changed > timezone.now().timestamp() - settings.STORE_GRACE_S


def _used_by_replicas() -> frozenset[str]:
    """Folders that a replica which is still on the disk was started with."""
    used: set[str] = set()
    for file in Path(settings.REPLICAS_DIR).glob("*/spec.json"):
        try:
            spec = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        used |= {str(spec.get("model_directory")), str(spec["environment"].get("directory"))}
    return frozenset(used)
