"""Rate limits: how many calls a minute an endpoint, a user, a group may make.

The endpoint's own limit always applies. Of the others the most specific ones do: the limit that
names the caller, else those of all their groups (a group's members share its calls), else the one
for each user. A call passes only where every limit that applies has room; only then it is counted.

Calls are counted in a window that slides over the last sixty seconds: those of this clock minute,
and of the one before it the part that the window still covers, taken as spread evenly. Redis keeps
the counts for all processes, in one atomic step a call; calls that wait at the same time share one
exchange with it. While Redis is away each process grants its own share of each limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import redis.asyncio
from redis.exceptions import RedisError

from serving import bus
from serving.gateway.errors import RateLimited
from serving.spec import LimitKey, Principal, RateLimit

log = logging.getLogger(__name__)

WINDOW_S = 60
LEAST_WAIT_S = 0.001
PATIENCE_S = 1.0
AWAY_S = 2.0
"""For how long Redis is not asked after it did not answer."""
MAX_LOCAL_COUNTS = 10_000
MAX_AT_ONCE = 256

SCRIPT = """
local at = redis.call('TIME')
local now = (at[1] + at[2] / 1000000) / 60
local minute = math.floor(now)
local passed = now - minute
local counts, longest, which = {}, -1, 0
for i, key in ipairs(KEYS) do
  local calls = tonumber(ARGV[i])
  local kept = redis.call('HMGET', key, 'minute', 'current', 'previous')
  local age = minute - (tonumber(kept[1]) or -1)
  local current, previous = 0, 0
  if age == 0 then
    current, previous = tonumber(kept[2]), tonumber(kept[3])
  elseif age == 1 then
    previous = tonumber(kept[2])
  end
  counts[i] = {current, previous}
  if current + math.floor(previous * (1 - passed)) >= calls then
    local wait = 1
    if current < calls then
      wait = 1 - passed - (calls - current) / previous
    elseif calls > 0 then
      wait = 1 - passed + math.max(0, 1 - calls / current)
    end
    if wait > longest then longest, which = wait, i end
  end
end
if which > 0 then return {which, math.ceil(longest * 60000)} end
for i, key in ipairs(KEYS) do
  redis.call('HSET', key, 'minute', minute, 'current', counts[i][1] + 1, 'previous', counts[i][2])
  redis.call('EXPIRE', key, 120)
end
return {0, 0}
"""
"""Gives which limit (from 1) has no room and for how many milliseconds, {0, 0} where all have."""


class Counted(NamedTuple):
    """A limit as it applies to one caller: what counts their calls, and how many pass."""

    key: str
    limit: RateLimit


class Refusal(NamedTuple):
    """The place of the limit that has no room, and when it has again."""

    which: int
    wait_s: float


@dataclass(slots=True)
class Window:
    """Calls of a clock minute and of the one before it; the same sums as in `SCRIPT`."""

    minute: int = -1
    current: int = 0
    previous: int = 0

    def move_to(self, minute: int) -> None:
        """Forget what is too old."""
        age = minute - self.minute
        if age:
            self.previous = self.current if age == 1 else 0
            self.minute, self.current = minute, 0

    def wait_for_room(self, calls: int, passed: float) -> float | None:
        """Seconds until one more call passes, None where it does now.

        Args:
            calls: The limit.
            passed: The part of this minute that is over, from 0 to 1.
        """
        if self.current + math.floor(self.previous * (1 - passed)) < calls:
            return None
        if self.current < calls:
            # Room comes just after that moment, so at the moment itself there is still a wait.
            wait_s = WINDOW_S * (1 - passed - (calls - self.current) / self.previous)
            return max(LEAST_WAIT_S, wait_s)
        if not calls:
            return float(WINDOW_S)
        return WINDOW_S * (1 - passed + max(0.0, 1 - calls / self.current))


class LocalCounts:
    """This process's own counts, for as long as Redis is away.

    Args:
        processes: Gateways that share each limit.
    """

    def __init__(self, processes: int) -> None:
        self._processes = max(1, processes)
        self._windows: dict[str, Window] = {}

    def take(self, counted: Sequence[Counted], now: float) -> Refusal | None:
        """Count a call where all limits have room, else say which one has none."""
        minute, seconds = divmod(now, WINDOW_S)
        if len(self._windows) > MAX_LOCAL_COUNTS:
            self._windows.clear()
        windows = [self._windows.setdefault(item.key, Window()) for item in counted]
        refusal: Refusal | None = None
        for index, (item, window) in enumerate(zip(counted, windows, strict=True)):
            window.move_to(int(minute))
            share = math.ceil(item.limit.calls / self._processes)
            wait_s = window.wait_for_room(share, seconds / WINDOW_S)
            if wait_s is not None and (refusal is None or wait_s > refusal.wait_s):
                refusal = Refusal(index, wait_s)
        if refusal is None:
            for window in windows:
                window.current += 1
        return refusal


class _Ask(NamedTuple):
    counted: Sequence[Counted]
    answer: asyncio.Future[Refusal | None]


class RateLimiter:
    """Admits calls; one a process.

    Args:
        redis_url: Where all processes count.
        processes: Gateways that share each limit while Redis is away.
    """

    def __init__(self, redis_url: str, processes: int) -> None:
        self._redis_url = redis_url
        self._local = LocalCounts(processes)
        self._client: redis.asyncio.Redis | None = None
        self._asks: list[_Ask] = []
        self._exchange: asyncio.Task[None] | None = None
        self._away_until = 0.0

    async def admit(
        self, endpoint_id: str, name: str, limits: Iterable[RateLimit], caller: Principal
    ) -> None:
        """Count a call.

        Raises:
            RateLimited: A limit has no room; the call is counted nowhere.
        """
        counted = limits_of(endpoint_id, limits, caller)
        if not counted:
            return
        refusal = await self._take(counted)
        if refusal is not None:
            raise _error(name, counted[refusal.which].limit, refusal.wait_s)

    async def stop(self) -> None:
        """Close the connection."""
        if self._exchange is not None:
            self._exchange.cancel()
            await asyncio.gather(self._exchange, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _take(self, counted: Sequence[Counted]) -> Refusal | None:
        if time.monotonic() < self._away_until:
            return self._local.take(counted, time.time())
        ask = _Ask(counted, asyncio.get_running_loop().create_future())
        self._asks.append(ask)
        if self._exchange is None:
            self._exchange = asyncio.create_task(self._answer_asks(), name="rate limits")
        return await ask.answer

    async def _answer_asks(self) -> None:
        """Ask for all that wait, again while more come meanwhile."""
        while self._asks:
            asks, self._asks = self._asks[:MAX_AT_ONCE], self._asks[MAX_AT_ONCE:]
            try:
                async with asyncio.timeout(PATIENCE_S):
                    answers = await self._ask_redis(asks)
            except (RedisError, OSError, TimeoutError) as exc:
                log.warning("each process keeps its share of rate limits, Redis is away: %r", exc)
                self._away_until = time.monotonic() + AWAY_S
                answers = [self._local.take(ask.counted, time.time()) for ask in asks]
            except asyncio.CancelledError:
                for ask in (*asks, *self._asks):
                    ask.answer.cancel()
                raise
            for ask, answer in zip(asks, answers, strict=True):
                if not ask.answer.done():  # the caller may be gone
                    ask.answer.set_result(answer)
        self._exchange = None  # in the same step as the look at what waits

    async def _ask_redis(self, asks: Sequence[_Ask]) -> list[Refusal | None]:
        if self._client is None:
            self._client = redis.asyncio.Redis.from_url(
                self._redis_url, socket_timeout=PATIENCE_S, socket_connect_timeout=PATIENCE_S
            )
        async with self._client.pipeline(transaction=False) as pipe:
            for ask in asks:
                keys = [item.key for item in ask.counted]
                calls = [str(item.limit.calls) for item in ask.counted]
                pipe.eval(SCRIPT, len(keys), *keys, *calls)
            replies: list[tuple[int, int]] = await pipe.execute()
        return [Refusal(which - 1, wait / 1000) if which else None for which, wait in replies]


def limits_of(
    endpoint_id: str, limits: Iterable[RateLimit], caller: Principal
) -> tuple[Counted, ...]:
    """The limits that apply to a caller, each with the name under which its calls are counted."""
    always: list[Counted] = []
    named: list[Counted] = []
    of_groups: list[Counted] = []
    of_each: list[Counted] = []
    for limit in sorted(limits, key=lambda limit: limit.calls):
        if limit.key is LimitKey.ENDPOINT:
            always.append(_count(endpoint_id, "endpoint", limit))
        elif limit.key is LimitKey.USER_GROUP:
            if limit.principal in caller.groups:
                of_groups.append(_count(endpoint_id, f"group:{limit.principal}", limit))
        elif limit.principal == caller.user_name:
            named.append(_count(endpoint_id, f"user:{caller.user_id}", limit))
        elif not limit.principal and limit.key is LimitKey.USER:
            of_each.append(_count(endpoint_id, f"user:{caller.user_id}", limit))
    applying: dict[str, Counted] = {}
    for counted in always + (named or of_groups or of_each):
        applying.setdefault(counted.key, counted)  # of two that count the same, the smaller one
    return tuple(applying.values())


def _count(endpoint_id: str, whose: str, limit: RateLimit) -> Counted:
    hashed = hashlib.blake2b(whose.encode(), digest_size=12).hexdigest()
    return Counted(bus.limit_key(endpoint_id, hashed), limit)


def _error(endpoint_name: str, limit: RateLimit, wait_s: float) -> RateLimited:
    whose = {
        LimitKey.ENDPOINT: "all callers together",
        LimitKey.USER_GROUP: f"members of group “{limit.principal}” together",
    }.get(limit.key, f"user “{limit.principal}”" if limit.principal else "each user")
    seconds = max(1, math.ceil(wait_s))
    return RateLimited(
        f"Endpoint “{endpoint_name}” takes at most {limit.calls} calls a minute from {whose}. "
        f"Try again in {seconds} s, or ask a manager of the endpoint to raise the limit.",
        retry_after_s=seconds,
    )
