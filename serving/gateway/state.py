"""What the control plane publishes, kept in memory: routes and principals.

Everything is loaded at the start; changes are heard at once; a reload every two seconds heals a
missed message. While Redis is away, or empty before the control plane has published again, the last
known state stays in force: endpoints serve without Redis.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from serving import bus
from serving.gateway.routing import Limits, LiveRoute
from serving.spec import Principal, Route, from_json

log = logging.getLogger(__name__)

RELOAD_S = 2.0
TOKEN_USE_S = 5.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
PATIENCE_AT_START_S = 3.0


class GatewayState:
    """The newest routes and principals; read by requests, written by one task.

    Attributes:
        routes: By endpoint name.
        principals: By the token's SHA-256 in hexadecimal.
        is_loaded: Whether anything was ever read; until then nobody can be told from a stranger.
    """

    def __init__(self, redis_url: str, limits: Limits) -> None:
        self._redis_url = redis_url
        self._limits = limits
        self.routes: dict[str, LiveRoute] = {}
        self.principals: dict[str, Principal] = {}
        self.is_loaded = False
        self._revision: str | None = None  # of what was read last, where it was complete
        self._texts: dict[tuple[str, str], str] = {}  # what was published, to spare parsing
        self._token_use: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._first_load = asyncio.Event()
        self._reload_soon = asyncio.Event()

    async def start(self) -> None:
        """Begin to follow; returns after the first load, or after a while without one."""
        self._tasks = [
            asyncio.create_task(self._follow(), name="gateway state"),
            asyncio.create_task(self._report_token_use(), name="gateway token use"),
        ]
        try:
            async with asyncio.timeout(PATIENCE_AT_START_S):
                await self._first_load.wait()
        except TimeoutError:
            log.warning("starting without routes: Redis does not answer yet")

    async def stop(self) -> None:
        """Stop following and close all connections to replicas."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for route in self.routes.values():
            route.leave()

    def reload_soon(self) -> None:
        """A replica did not answer: maybe there is a newer route."""
        self._reload_soon.set()

    def note_token_use(self, sha256: str) -> None:
        """The token was used now; told to the control plane in the background."""
        self._token_use[sha256] = time.time()

    # ---------------------------------------------------------------- following

    async def _follow(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                async with self._connected() as client, client.pubsub() as channel:
                    await channel.subscribe(bus.CHANGES)
                    await self._load(client)
                    self._first_load.set()
                    pause = FIRST_PAUSE_S
                    await self._listen(client, channel)
            except (RedisError, OSError, TimeoutError) as exc:
                log.warning("serving from memory, Redis does not answer: %s", exc)
            except Exception:  # the task must outlive whatever was published
                log.exception("the published state cannot be read")
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[redis.asyncio.Redis]:
        client = redis.asyncio.Redis.from_url(
            self._redis_url, decode_responses=True, socket_timeout=5, socket_connect_timeout=2
        )
        try:
            yield client
        finally:
            await client.aclose()

    async def _listen(
        self, client: redis.asyncio.Redis, channel: redis.asyncio.client.PubSub
    ) -> None:
        next_load = time.monotonic() + RELOAD_S
        while True:
            wait_s = max(0.0, next_load - time.monotonic())
            if self._reload_soon.is_set():
                wait_s = min(wait_s, 0.05)
            message = await channel.get_message(
                ignore_subscribe_messages=True, timeout=min(wait_s, 0.25)
            )
            if message is not None:
                await self._apply(client, str(message["data"]))
            if self._reload_soon.is_set() or time.monotonic() >= next_load:
                self._reload_soon.clear()
                await self._load(client)
                next_load = time.monotonic() + RELOAD_S

    async def _apply(self, client: redis.asyncio.Redis, change: str) -> None:
        kind, _, name = change.partition(":")
        if kind == "route":
            self._set_route(name, _text(await client.hget(bus.ROUTES, name)))
        elif kind == "principal":
            self._set_principal(name, _text(await client.hget(bus.PRINCIPALS, name)))
        else:
            await self._load(client)

    async def _load(self, client: redis.asyncio.Redis) -> None:
        """Read everything, unless nothing has changed since it was read."""
        if self._revision is not None and _text(await client.get(bus.REVISION)) == self._revision:
            return
        async with client.pipeline(transaction=True) as pipe:
            pipe.exists(bus.PUBLISHED)
            pipe.get(bus.REVISION)
            pipe.hgetall(bus.ROUTES)
            pipe.hgetall(bus.PRINCIPALS)
            is_published, revision, routes, principals = await pipe.execute()
        # A Redis that lost its data is filled again within seconds; until then what it lacks is
        # not gone.
        self._take_over(routes, principals, is_complete=bool(is_published))
        self._revision = _text(revision) if is_published else None
        self.is_loaded = self.is_loaded or bool(is_published) or bool(principals)

    def _take_over(
        self, routes: Mapping[str, str], principals: Mapping[str, str], *, is_complete: bool
    ) -> None:
        for name, text in routes.items():
            self._set_route(name, text)
        for sha256, text in principals.items():
            self._set_principal(sha256, text)
        if is_complete:
            for name in self.routes.keys() - routes.keys():
                self._set_route(name, None)
            for sha256 in self.principals.keys() - principals.keys():
                self._set_principal(sha256, None)

    def _set_route(self, name: str, text: str | None) -> None:
        if text is None:
            self._texts.pop(("route", name), None)
            route = self.routes.pop(name, None)
            if route is not None:
                route.leave()
            return
        spec = self._parse(Route, ("route", name), text)
        if spec is None:
            return
        known = self.routes.get(name)
        if known is None or known.spec.endpoint_id != spec.endpoint_id:
            if known is not None:
                known.leave()
            self.routes[name] = LiveRoute(spec, self._limits, self.reload_soon)
        else:
            known.update(spec)

    def _set_principal(self, sha256: str, text: str | None) -> None:
        if text is None:
            self._texts.pop(("principal", sha256), None)
            self.principals.pop(sha256, None)
            return
        principal = self._parse(Principal, ("principal", sha256), text)
        if principal is not None:
            self.principals[sha256] = principal

    def _parse(self, kind: type[Any], key: tuple[str, str], text: str) -> Any:
        """The published value, None where it is what was published before or cannot be read."""
        if self._texts.get(key) == text:
            return None
        self._texts[key] = text
        try:
            return from_json(kind, text)
        except (ValueError, TypeError, KeyError, json.JSONDecodeError) as exc:
            log.error("the published %s cannot be read: %s", key[0], exc)
            return None

    # ---------------------------------------------------------------- token use

    async def _report_token_use(self) -> None:
        while True:
            await asyncio.sleep(TOKEN_USE_S)
            if not self._token_use:
                continue
            used, self._token_use = self._token_use, {}
            try:
                async with self._connected() as client:
                    await client.hset(bus.TOKEN_USE, mapping={k: str(v) for k, v in used.items()})
            except (RedisError, OSError) as exc:
                log.warning("token use is not recorded, Redis does not answer: %s", exc)
                self._token_use = used | self._token_use


def _text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
