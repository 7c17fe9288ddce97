"""Counts requests and adds the counts to those of all gateways, in Redis, once a second.

A request costs it about two microseconds. While Redis is away the counts are kept here; there are
as many as served entities. Each addition has a number, so that one which Redis took without being
able to say so is not added twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from types import TracebackType

import orjson
import redis.asyncio
from redis.exceptions import RedisError

from serving import bus
from serving.errors import ServingError
from serving.gateway.calls import Call
from serving.gateway.http import CLIENT_GONE, ClientGone, Cut, Watch
from serving.metering import SLOT_S, Tally

log = logging.getLogger(__name__)

FLUSH_S = 1.0
PATIENCE_S = 2.0
LAST_PATIENCE_S = 1.0
TOTALS_TTL_S = 14 * 24 * 3600
RECENT_TTL_S = 120
NUMBER_TTL_S = 3600

SCRIPT = """
local last = tonumber(redis.call('GET', KEYS[1])) or 0
if tonumber(ARGV[1]) <= last then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
for i = 2, #KEYS do
  for field, count in pairs(cjson.decode(ARGV[2 * i])) do
    local is_time = string.sub(field, -3) == '_ms'
    redis.call(is_time and 'HINCRBYFLOAT' or 'HINCRBY', KEYS[i], field, count)
  end
  redis.call('EXPIRE', KEYS[i], ARGV[2 * i - 1])
end
return 1
"""

Tallies = dict[tuple[str, str], Tally]
"""By endpoint id and served entity."""


class Measured:
    """One request under way; leaving the `with` counts it, however it ends."""

    __slots__ = ("_began", "_call", "_endpoint_id", "_meter", "_watch")

    def __init__(self, meter: Meter, endpoint_id: str, watch: Watch) -> None:
        self._meter = meter
        self._endpoint_id = endpoint_id
        self._watch = watch
        self._began = 0.0
        self._call: Call | None = None

    def begin(self, call: Call) -> Call:
        """The request is read: its time runs from now on."""
        self._call = call
        self._began = time.perf_counter()
        return call

    def __enter__(self) -> Measured:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        call = self._call
        status = call.status if call else 200
        if error is not None:
            status = _status_of(error, self._watch.cut)
        elapsed_s = time.perf_counter() - self._began
        self._meter.count(self._endpoint_id, call, status, elapsed_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """What is to be added in Redis, once.

    Attributes:
        slot: When it happened; None where it took so long that it is no news.
    """

    number: int
    slot: int | None
    tallies: Tallies


class Meter:
    """One process's counts.

    Args:
        redis_url: Where all processes add up.
    """

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._process = os.urandom(8).hex()
        self._tallies: Tallies = {}
        self._since = time.time()
        self._number = 0
        self._unsent: Addition | None = None
        self._client: redis.asyncio.Redis | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to add up in the background."""
        self._task = asyncio.create_task(self._flush_for_ever(), name="gateway meter")

    async def stop(self) -> None:
        """Add the rest, if Redis is there."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_PATIENCE_S):
                await self.flush()
        except (RedisError, OSError, TimeoutError) as exc:
            log.warning("the last requests are not counted, Redis does not answer: %s", exc)
        if self._client is not None:
            await self._client.aclose()

    def measure(self, endpoint_id: str, watch: Watch) -> Measured:
        """Count the request that is answered inside the `with`."""
        return Measured(self, endpoint_id, watch)

    def count(self, endpoint_id: str, call: Call | None, status: int, elapsed_s: float) -> None:
        """Count a request that is over.

        Args:
            endpoint_id: Of the endpoint that it was for.
            call: What was read of it; None where it did not come so far.
            status: That it was answered with, 499 where nobody was there.
            elapsed_s: Since it was read.
        """
        tally = self.tally(endpoint_id, call.served if call else "")
        tally.statuses[status] = tally.statuses.get(status, 0) + 1
        if call is None:
            return
        tally.total.add(elapsed_s * 1000)
        tally.retried += call.retries > 0
        if call.decoded is not None:
            tally.rows += sum(part.rows for part in call.decoded.parts)
        if call.compute_s is not None:
            tally.compute.add(call.compute_s * 1000)
            tally.queue.add(max(0.0, call.exchange_s - call.compute_s) * 1000)

    def tally(self, endpoint_id: str, entity_name: str) -> Tally:
        """What was counted of a served entity and is not in Redis yet."""
        key = endpoint_id, entity_name
        found = self._tallies.get(key)
        if found is None:
            found = self._tallies[key] = Tally()
        return found

    async def flush(self) -> None:
        """Add what was counted, and before that what an earlier call could not.

        Raises:
            RedisError, OSError, TimeoutError: Redis is away; nothing is lost.
        """
        if self._unsent is not None:
            await self._send(self._unsent)
            self._unsent = None
        now = time.time()
        is_news = now - self._since < SLOT_S
        tallies, self._tallies, self._since = self._tallies, {}, now
        if tallies:
            self._number += 1
            slot = int(now // SLOT_S) if is_news else None
            self._unsent = Addition(number=self._number, slot=slot, tallies=tallies)
            await self._send(self._unsent)
            self._unsent = None

    async def _flush_for_ever(self) -> None:
        is_away = False
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self.flush()
            except (RedisError, OSError, TimeoutError) as exc:
                if not is_away:
                    log.warning("requests are counted in memory, Redis does not answer: %r", exc)
                is_away = True
            else:
                is_away = False

    async def _send(self, addition: Addition) -> None:
        if self._client is None:
            self._client = redis.asyncio.Redis.from_url(
                self._redis_url, socket_timeout=PATIENCE_S, socket_connect_timeout=PATIENCE_S
            )
        keys = [bus.meter_number_key(self._process)]
        arguments: list[str | bytes] = [str(addition.number), str(NUMBER_TTL_S)]
        for (endpoint_id, entity_name), tally in addition.tallies.items():
            keys.append(bus.meter_key(endpoint_id))
            arguments += [str(TOTALS_TTL_S), orjson.dumps(tally.fields(entity_name))]
            if addition.slot is not None:
                keys.append(bus.meter_slot_key(endpoint_id, addition.slot))
                arguments += [str(RECENT_TTL_S), orjson.dumps(tally.status_fields(entity_name))]
        await self._client.eval(SCRIPT, len(keys), *keys, *arguments)


def _status_of(error: BaseException, cut: Cut | None) -> int:
    if isinstance(error, ServingError):
        return error.status
    if isinstance(error, asyncio.CancelledError):
        return {Cut.LATE: 504, Cut.SLOW_BODY: 400}.get(cut or Cut.CLIENT_GONE, CLIENT_GONE)
    return CLIENT_GONE if isinstance(error, ClientGone) else 500
