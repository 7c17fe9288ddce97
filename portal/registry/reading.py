"""What the pages show of models and versions, each from a bounded number of queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from portal.accounts.models import User
from portal.endpoints.models import Endpoint
from portal.registry.models import ModelVersion, RegisteredModel
from portal.registry.states import EXPRESS_TONES, VERSION_TONES, ExpressState, VersionStatus
from portal.ui.tones import Chip

BUILD_IS_SILENT = timedelta(minutes=10)
"""A build that has said nothing for so long is over; the next deploy starts it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressView:
    """Whether a version is express, why not, and what would make it so.

    Attributes:
        is_settled: Nothing moves any more, so the page need not ask again.
        needs_packing: Registering it again with env_pack is the cure.
        can_stage: Its packed files are here, so that staging can be started (again).
    """

    chip: Chip
    is_settled: bool
    needs_packing: bool
    can_stage: bool


def models_matching(user: User, text: str) -> QuerySet[RegisteredModel]:
    """Models that `user` reads and whose name holds `text`, with their newest version's facts."""
    newest = ModelVersion.objects.filter(model=OuterRef("pk")).order_by("-version")
    return (
        RegisteredModel.objects.readable_by(user)
        .filter(name__icontains=text)
        .select_related("owner")
        .prefetch_related("aliases__model_version")
        .annotate(
            newest_version=Subquery(newest.values("version")[:1]),
            newest_status=Subquery(newest.values("status")[:1]),
            newest_express_state=Subquery(newest.values("express_state")[:1]),
        )
    )


def version_chip(status: str, express_state: str) -> Chip:
    """One chip for a list: what keeps the version from being served, else whether it is express."""
    if status != VersionStatus.READY:
        known = VersionStatus(status)
        return Chip(str(known.label), VERSION_TONES[known])
    express = ExpressState(express_state)
    return Chip(str(express.label), EXPRESS_TONES[express])


def express_view(version: ModelVersion) -> ExpressView:
    """What the version's page says about express deployment."""
    chip = version_chip(version.status, version.express_state)
    is_staging = version.express_state == ExpressState.STAGING
    is_uploading = version.status == VersionStatus.PENDING_REGISTRATION
    return ExpressView(
        chip=Chip(chip.label, chip.tone, _express_reason(version)),
        is_settled=not (is_staging or is_uploading or is_building(version)),
        needs_packing=version.status == VersionStatus.READY
        and version.express_state in {ExpressState.NOT_STAGED, ExpressState.FAILED},
        can_stage=version.status == VersionStatus.READY
        and version.is_packed
        and version.express_state in {ExpressState.NOT_STAGED, ExpressState.FAILED},
    )


def is_building(version: ModelVersion) -> bool:
    """Whether an environment is being built from the version's requirements now."""
    beat_at = version.build_beat_at
    return beat_at is not None and timezone.now() - beat_at < BUILD_IS_SILENT


def endpoints_using(version: ModelVersion, user: User) -> list[Endpoint]:
    """Endpoints that `user` sees and whose active or pending config serves the version."""
    return list(
        Endpoint.objects.visible_to(user)
        .filter(
            Q(active_config__entities__model_version=version)
            | Q(pending_config__entities__model_version=version),
            is_deleting=False,
        )
        .order_by("name")
        .distinct()
    )


def _express_reason(version: ModelVersion) -> str:
    if version.status == VersionStatus.PENDING_REGISTRATION:
        return "The client is still uploading files, or stopped before it was done."
    if version.status == VersionStatus.FAILED_REGISTRATION:
        return version.status_message or "The registration was not completed. Register it again."
    if version.express_state == ExpressState.STAGED:
        return (
            "The packed model and environment are unpacked and checked: a deploy starts in "
            "seconds, and GPU endpoints can be throughput optimized."
        )
    if version.express_message:
        return version.express_message
    if version.express_state == ExpressState.STAGING:
        return "Unpacking and checking the model and its environment."
    if version.is_packed:
        return "The packed environment is here, but nobody asked for its staging yet."
    return (
        "Registered without its packed environment: it runs on the standard backend, in an "
        "environment that is built from its requirements at the first deploy."
    )
