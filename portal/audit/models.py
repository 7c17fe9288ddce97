"""The audit log: one row an act, written once, never changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models

from portal.audit.states import Outcome


class AppendOnly(Exception):
    """Somebody tried to change the past: a fault of the caller."""


class AuditQuerySet(models.QuerySet["AuditEvent"]):
    def update(self, **_: Any) -> int:
        """Refuse."""
        raise AppendOnly("Rows of the audit log are not changed.")

    def delete(self) -> tuple[int, dict[str, int]]:
        """Refuse; `forget_before` is for what is too old to keep."""
        raise AppendOnly("Rows of the audit log are not deleted one by one.")

    def forget_before(self, moment: datetime) -> int:
        """Delete what is older than `moment`; gives how many rows."""
        deleted, _ = models.QuerySet.delete(self.filter(at__lt=moment))
        return deleted


class AuditEvent(models.Model):
    """One act, in the words of `states`; what was once written stays, whatever words come later.

    Names are copied, not referred to: a row outlives the user and the object that it speaks of.
    The database refuses updates too (a trigger, made by the first migration).
    """

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor_id = models.BigIntegerField(null=True)
    actor = models.CharField(max_length=150, blank=True)  # empty: nobody was logged in
    via = models.CharField(max_length=16)
    token_id = models.CharField(max_length=64, blank=True)  # its public id, no secret
    address = models.CharField(max_length=64, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    action = models.CharField(max_length=32)
    object_kind = models.CharField(max_length=16)
    object_name = models.CharField(max_length=300)
    outcome = models.CharField(max_length=8, default=Outcome.DONE)
    detail = models.JSONField(default=dict)  # never a secret, a token or an environment's values

    objects = AuditQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        indexes = [
            # The page's filters, newest first.
            models.Index(fields=["actor", "-id"], name="audit_by_actor"),
            models.Index(fields=["action", "-id"], name="audit_by_action"),
            models.Index(fields=["object_name", "-id"], name="audit_by_object"),
        ]

    def __str__(self) -> str:
        return f"{self.actor or self.via} {self.action} {self.object_name}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write it once.

        Raises:
            AppendOnly: It is written already.
        """
        if not self._state.adding:
            raise AppendOnly("Rows of the audit log are not changed.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Refuse."""
        raise AppendOnly("Rows of the audit log are not deleted one by one.")
