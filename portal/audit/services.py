"""Record acts, and forget those that are too old to keep."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils import timezone

from portal.audit.context import current_actor
from portal.audit.models import AuditEvent
from portal.audit.states import Action, ObjectKind, Outcome, Via

if TYPE_CHECKING:
    from portal.accounts.models import User

__all__ = ["Action", "ObjectKind", "Outcome", "forget_old", "record", "record_denied"]

MAX_NAME = AuditEvent._meta.get_field("object_name").max_length or 300


def record(
    action: Action,
    kind: ObjectKind,
    name: str,
    *,
    user: User | None = None,
    outcome: Outcome = Outcome.DONE,
    **detail: Any,
) -> None:
    """Write down one act, in the transaction of the act itself: no act without its row.

    Args:
        action: What was done.
        kind: To what sort of object.
        name: To which one.
        user: Who did it, where the service was told; else whoever the request belongs to.
        outcome: How it ended.
        detail: What else matters, as JSON; never a secret, a token or a variable's value.
    """
    actor = current_actor()
    user_id, actor_name, via = actor.user_id, actor.name, actor.via
    if user is not None:
        user_id, actor_name = user.pk, user.get_username()
        via = Via.SESSION if via == Via.NOBODY else via  # the login itself
    AuditEvent.objects.create(
        actor_id=user_id,
        actor=actor_name,
        via=via,
        token_id=actor.token_id,
        address=actor.address,
        request_id=actor.request_id,
        action=action,
        object_kind=kind,
        object_name=name[:MAX_NAME],
        outcome=outcome,
        detail=detail,
    )


def record_denied(path: str, method: str) -> None:
    """Write down that a change was refused with 403."""
    record(Action.DENIED, ObjectKind.PATH, path, outcome=Outcome.DENIED, method=method)


def forget_old() -> int:
    """Delete what is older than the settings keep; gives how many rows."""
    if not settings.AUDIT_DAYS:
        return 0
    return AuditEvent.objects.all().forget_before(
        timezone.now() - timedelta(days=settings.AUDIT_DAYS)
    )
