"""Background work on accounts."""

from __future__ import annotations

import logging

import redis
from celery import shared_task

from portal import bus
from portal.accounts import services
from serving.bus import TOKEN_USE

log = logging.getLogger(__name__)


@shared_task(name="accounts.record_token_use")
def record_token_use() -> None:
    """Move the times that gateways noted into the tokens' rows."""
    try:
        found: dict[str, str] = bus.client().hgetall(TOKEN_USE)  # type: ignore[assignment]  # not async here
        unknown = services.note_use({digest: float(at) for digest, at in found.items()})
        if unknown:
            bus.client().hdel(TOKEN_USE, *unknown)
    except redis.RedisError as exc:
        log.warning("the last use of tokens is recorded later, Redis does not answer: %s", exc)
