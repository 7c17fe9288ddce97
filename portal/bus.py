"""Publish routes and principals for the gateway (see `serving.bus` for the names).

Redis may be away: what could not be published is published by the next reconcile, so callers
never fail because of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import uuid4

import redis
from django.conf import settings

from serving import bus
from serving.metering import Metered, read_recent, read_totals, slots_of
from serving.spec import Principal, Route, to_json

log = logging.getLogger(__name__)


@cache
def client() -> redis.Redis:
    """This process's connection pool."""
    return redis.Redis.from_url(settings.REDIS_URL, decode_responses=True, socket_timeout=5)


def publish_route(route: Route) -> None:
    """Make `route` known to every gateway."""
    _set(bus.ROUTES, route.endpoint_name, to_json(route), f"route:{route.endpoint_name}")


def remove_route(endpoint_name: str) -> None:
    """Let every gateway forget the endpoint."""
    _set(bus.ROUTES, endpoint_name, None, f"route:{endpoint_name}")


def publish_principal(sha256: str, principal: Principal) -> None:
    """Make a token known to every gateway."""
    _set(bus.PRINCIPALS, sha256, to_json(principal), f"principal:{sha256}")


def remove_principal(sha256: str) -> None:
    """Let every gateway refuse the token from now on."""
    _set(bus.PRINCIPALS, sha256, None, f"principal:{sha256}")


def read_meter(endpoint_id: str) -> Metered:
    """What all gateways have counted of an endpoint's requests; nothing while Redis is away."""
    now = time.time()
    try:
        with client().pipeline(transaction=False) as pipe:
            pipe.hgetall(bus.meter_key(endpoint_id))
            for slot in slots_of(now):
                pipe.hgetall(bus.meter_slot_key(endpoint_id, slot))
            totals, *slots = pipe.execute()
    except redis.RedisError as exc:
        log.warning("what gateways counted is not known, Redis does not answer: %s", exc)
        return Metered()
    return Metered(totals=read_totals(totals), recent=read_recent(slots, now))


def publish_all(routes: Mapping[str, Route], principals: Mapping[str, Principal]) -> None:
    """Replace everything that is published; gateways are told only where something differs."""
    wanted_routes: dict[str, str] = {name: to_json(route) for name, route in routes.items()}
    wanted_principals = {sha256: to_json(p) for sha256, p in principals.items()}
    try:
        differs = _replace(bus.ROUTES, wanted_routes) | _replace(bus.PRINCIPALS, wanted_principals)
        is_new = client().set(bus.PUBLISHED, "1", nx=True)
        if differs or is_new:
            client().set(bus.REVISION, uuid4().hex)
            client().publish(bus.CHANGES, "all")
    except redis.RedisError as exc:
        log.warning("nothing published, Redis does not answer: %s", exc)


def _replace(key: str, wanted: Mapping[str, str]) -> bool:
    found: Mapping[str, str] = client().hgetall(key)  # type: ignore[assignment]  # not async here
    gone = set(found) - set(wanted)
    changed: dict[Any, Any] = {f: value for f, value in wanted.items() if found.get(f) != value}
    if gone:
        client().hdel(key, *gone)
    if changed:
        client().hset(key, mapping=changed)
    return bool(gone or changed)


def _set(key: str, field: str, value: str | None, change: str) -> None:
    try:
        with client().pipeline() as pipe:
            if value is None:
                pipe.hdel(key, field)
            else:
                pipe.hset(key, field, value)
            pipe.set(bus.REVISION, uuid4().hex)
            pipe.publish(bus.CHANGES, change)
            pipe.execute()
    except redis.RedisError as exc:
        log.warning("%s waits for the next reconcile, Redis does not answer: %s", change, exc)
