"""Read previews and turn them on or off."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from portal.accounts.models import User
from portal.audit import services as audit
from portal.audit.states import Action, ObjectKind
from portal.previews.models import Preview
from portal.previews.states import PREVIEWS, THROUGHPUT_OPTIMIZED, PreviewInfo
from portal.rest import PermissionDenied, ResourceDoesNotExist

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewView:
    """A preview with its state; nobody and no time while it is as it came."""

    info: PreviewInfo
    enabled: bool
    changed_by: User | None
    changed_at: datetime | None


def is_enabled(name: str = THROUGHPUT_OPTIMIZED) -> bool:
    """Whether the preview is on."""
    return Preview.objects.filter(name=name, enabled=True).exists()


def all_previews() -> list[PreviewView]:
    """Every preview that exists."""
    rows = {row.name: row for row in Preview.objects.select_related("changed_by")}
    return [_view(info, rows.get(name)) for name, info in PREVIEWS.items()]


def get_preview(name: str) -> PreviewView:
    """One preview.

    Raises:
        ResourceDoesNotExist: There is no such preview.
    """
    info = PREVIEWS.get(name)
    if info is None:
        raise ResourceDoesNotExist(f"There is no preview {name[:64]}.")
    row = Preview.objects.select_related("changed_by").filter(name=name).first()
    return _view(info, row)


@transaction.atomic
def set_enabled(name: str, enabled: bool, user: User | None) -> PreviewView:  # noqa: FBT001 - reads as "set X enabled True"
    """Turn a preview on or off; doing it again keeps who did it first.

    Args:
        name: The preview.
        enabled: Its new state.
        user: Who does it; None for the operator at the console.

    Raises:
        ResourceDoesNotExist: There is no such preview.
        PermissionDenied: `user` is not a workspace admin.
    """
    before = get_preview(name)
    if user is not None and not user.is_workspace_admin:
        raise PermissionDenied("Only workspace admins may turn previews on or off.")
    if before.enabled != enabled:
        Preview.objects.update_or_create(
            name=name, defaults={"enabled": enabled, "changed_by": user}
        )
        audit.record(Action.PREVIEW_SET, ObjectKind.PREVIEW, name, user=user, enabled=enabled)
        log.info(
            "preview %s is turned %s by %s", name, "on" if enabled else "off", user or "console"
        )
    return get_preview(name)


def _view(info: PreviewInfo, row: Preview | None) -> PreviewView:
    return PreviewView(
        info=info,
        enabled=bool(row and row.enabled),
        changed_by=row.changed_by if row else None,
        changed_at=row.changed_at if row else None,
    )
