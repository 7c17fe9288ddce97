"""Ask for a task once the current transaction is committed, by the task's name."""

from __future__ import annotations

import logging
from functools import partial

from django.db import transaction
from kombu.exceptions import OperationalError

from portal.celery import app

log = logging.getLogger(__name__)


def enqueue(name: str, *args: int | str, countdown_s: float = 0, queue: str = "default") -> None:
    """Send task `name` with `args` after the commit.

    A broker that does not answer loses nothing: the reconcilers find what waits and send it again.
    """
    transaction.on_commit(partial(_send, name, args, countdown_s, queue))


def _send(name: str, args: tuple[int | str, ...], countdown_s: float, queue: str) -> None:
    try:
        app.send_task(name, args=args, countdown=countdown_s or None, queue=queue, retry=False)
    except (OperationalError, OSError) as exc:
        log.warning("task %s waits for the broker: %s", name, exc)
