"""Background work on the audit log."""

from __future__ import annotations

import logging

from celery import shared_task

from portal.audit import services

log = logging.getLogger(__name__)


@shared_task(name="audit.forget_old")
def forget_old() -> None:
    """Delete rows beyond the retention."""
    if count := services.forget_old():
        log.info("%s rows of the audit log were too old to keep", count)
