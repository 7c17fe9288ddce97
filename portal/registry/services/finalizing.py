"""Finalize: the upload is over, the version becomes READY with what its files say."""

from __future__ import annotations

import logging
from dataclasses import asdict

from django.db import transaction

from portal.accounts.models import User
from portal.audit.services import Action, Outcome
from portal.registry.models import ModelVersion
from portal.registry.services.contents import read_contents
from portal.registry.services.models import find_version, record_version, writable_version
from portal.registry.states import VersionStatus
from portal.rest import InvalidParameterValue, InvalidState, ResourceDoesNotExist

log = logging.getLogger(__name__)


def finalize_version(user: User, name: str, version: str) -> ModelVersion:
    """Make a version READY and its files immutable; done again, it changes nothing.

    Raises:
        InvalidParameterValue: The files hold no MLmodel that can be read; the version has failed.
        InvalidState: Its registration failed before.
    """
    found = writable_version(user, name, version)
    if found.status == VersionStatus.READY:
        return found
    if found.status == VersionStatus.FAILED_REGISTRATION:
        raise InvalidState(f"{found} has failed: {found.status_message} Register a new version.")
    try:
        contents = read_contents(found.files_directory)
    except InvalidParameterValue as exc:
        _settle(found, VersionStatus.FAILED_REGISTRATION, {"status_message": exc.message}, by=user)
        raise
    facts = asdict(contents)
    facts["logged_model_id"] = contents.logged_model_id or found.logged_model_id
    if _settle(found, VersionStatus.READY, {"status_message": "", **facts}, by=user):
        log.info("%s is READY, %d bytes", found, contents.size_bytes)
    return find_version(user, name, version)


@transaction.atomic
def _settle(
    version: ModelVersion, status: VersionStatus, facts: dict[str, object], *, by: User | None
) -> bool:
    """Leave PENDING_REGISTRATION; False when another request did it first."""
    now = ModelVersion.objects.select_for_update(of=("self",)).filter(pk=version.pk).first()
    if now is None:
        raise ResourceDoesNotExist(f"{version} was deleted.")
    if now.status != VersionStatus.PENDING_REGISTRATION:
        return False
    for field, value in facts.items():
        setattr(now, field, value)
    now.status = status
    now.save(update_fields=["status", "updated_at", *facts])
    if by is not None:
        is_ready = status == VersionStatus.READY
        outcome = Outcome.DONE if is_ready else Outcome.FAILED
        record_version(Action.VERSION_FINALIZE, now, by, outcome=outcome)
    return True


def expire_version(version: ModelVersion) -> bool:
    """Give up a version whose upload never ended."""
    return _settle(
        version,
        VersionStatus.FAILED_REGISTRATION,
        {"status_message": "Its upload was never finished."},
        by=None,
    )
