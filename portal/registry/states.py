"""States of model versions and of their staging, with what may follow what."""

from __future__ import annotations

from django.db.models import TextChoices

from portal.ui.tones import Tone


class VersionStatus(TextChoices):
    PENDING_REGISTRATION = "PENDING_REGISTRATION", "Uploading"
    READY = "READY", "Ready"
    FAILED_REGISTRATION = "FAILED_REGISTRATION", "Registration failed"


class ExpressState(TextChoices):
    """Whether the packed model and environment are unpacked here and checked."""

    NOT_STAGED = "NOT_STAGED", "Not staged"
    STAGING = "STAGING", "Staging"
    STAGED = "STAGED", "Express"
    FAILED = "FAILED", "Staging failed"


class EnvironmentState(TextChoices):
    PREPARING = "PREPARING", "Preparing"
    READY = "READY", "Ready"
    FAILED = "FAILED", "Failed"


FOLLOWS: dict[ExpressState, set[ExpressState]] = {
    ExpressState.NOT_STAGED: {ExpressState.STAGING},
    ExpressState.STAGING: {ExpressState.STAGED, ExpressState.FAILED},
    ExpressState.STAGED: {ExpressState.STAGING},
    ExpressState.FAILED: {ExpressState.STAGING},
}

EXPRESS_TONES: dict[ExpressState, Tone] = {
    ExpressState.NOT_STAGED: Tone.IDLE,
    ExpressState.STAGING: Tone.BUSY,
    ExpressState.STAGED: Tone.GOOD,
    ExpressState.FAILED: Tone.BAD,
}
VERSION_TONES: dict[VersionStatus, Tone] = {
    VersionStatus.PENDING_REGISTRATION: Tone.BUSY,
    VersionStatus.READY: Tone.GOOD,
    VersionStatus.FAILED_REGISTRATION: Tone.BAD,
}
