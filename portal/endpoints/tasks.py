"""Celery tasks: thin, repeatable, and never long."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from celery import shared_task

from portal import bus
from portal.endpoints.deployment import machine
from portal.endpoints.deployment import reconcile as reconciler
from portal.queue import enqueue

RECONCILE_LOCK = "shoal:lock:endpoints.reconcile"
LOCK_EXPIRES_S = 30


@shared_task(name="endpoints.advance", soft_time_limit=120, time_limit=150)
def advance(deployment_id: int) -> None:
    """Take a deployment as far as it goes now; comes back by itself while it waits."""
    again_s = machine.advance(deployment_id, owner=uuid.uuid4().hex)
    if again_s is not None:
        enqueue("endpoints.advance", deployment_id, countdown_s=again_s)


@shared_task(name="endpoints.reconcile", soft_time_limit=60, time_limit=90)
def reconcile() -> None:
    """Move what runs towards what is wanted; one at a time, as far as Redis can tell."""
    with _alone() as is_alone:
        if is_alone:
            reconciler.reconcile()


@contextmanager
def _alone() -> Iterator[bool]:
    try:
        mine = bool(bus.client().set(RECONCILE_LOCK, "1", nx=True, ex=LOCK_EXPIRES_S))
    except redis.RedisError:
        mine = True  # rounds may overlap; it is only a waste
    try:
        yield mine
    finally:
        if mine:
            _unlock()


def _unlock() -> None:
    try:
        bus.client().delete(RECONCILE_LOCK)
    except redis.RedisError:
        return
