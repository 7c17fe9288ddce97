"""Endpoints as the gateway keeps them in memory: who may ask, and which replica answers.

A served entity admits at most `max_in_flight` requests for each replica and queues a bounded number
behind them. Behind Triton they gather in its `Joiner`; a standard replica gets them one by one. A
replica that failed gets one request at a time, after a pause, until one succeeds.
Objects outlive changes of the published routes, so that counts, queues and connections stay right.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from serving.errors import Overloaded, ReplicaUnavailable
from serving.gateway.calls import TOO_MANY
from serving.gateway.errors import EndpointDoesNotExist
from serving.gateway.joining import Joiner
from serving.gateway.transport import ReplicaPool
from serving.permissions import Level, highest
from serving.protocol.codec import EntityCodec
from serving.spec import Backend, Principal, Route, RouteEntity, RouteReplica

SLOW_EXCHANGE_S = 0.002
"""From here on one joined request waits at a replica beside those that its instances work on, so
that no instance idles between two; for faster models larger groups gain more."""

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on waiting.

    Attributes:
        max_waiting: Requests that may queue at a served entity beyond those in flight.
        recovery_s: How long requests wait for replicas that went away to come back.
    """

    max_waiting: int = 100
    recovery_s: float = 30.0


class LiveReplica:
    """A replica, its connections and its load.

    Attributes:
        in_flight: Requests on the wire; behind Triton each may carry the rows of many callers.
    """

    __slots__ = ("failures", "in_flight", "is_gone", "not_before", "pool", "spec")

    def __init__(self, spec: RouteReplica) -> None:
        self.spec = spec
        self.pool = ReplicaPool(spec.address)
        self.in_flight = 0
        self.failures = 0  # in a row
        self.not_before = 0.0  # on the loop's clock
        self.is_gone = False

    def leave(self) -> None:
        """Take no more requests; those in flight finish."""
        self.is_gone = True
        self.pool.close()


class LiveEntity:
    """A served entity: its codec, its replicas and the requests that wait for one.

    Args:
        spec: What was published.
        limits: On waiting.
        reload_soon: Called when a replica does not answer: maybe there is a newer route.
    """

    def __init__(self, spec: RouteEntity, limits: Limits, reload_soon: Callable[[], None]) -> None:
        self.spec = spec
        self.limits = limits
        self.reload_soon = reload_soon
        self.replicas: list[LiveReplica] = []
        self.codec: EntityCodec | None = None
        self.joiner: Joiner | None = None
        self.is_gone = False
        self.waiters: deque[asyncio.Future[LiveReplica | None]] = deque()
        self._had_replicas_at = -1e9
        self.update(spec)

    def update(self, spec: RouteEntity) -> None:
        """Take over a newly published state."""
        before = (self.spec.signature, self.spec.max_batch_size, self.spec.entity_version)
        after = (spec.signature, spec.max_batch_size, spec.entity_version)
        if spec.backend is not Backend.TRITON:
            self._read_by(None)
        elif self.codec is None or before != after:
            self._read_by(EntityCodec(spec.signature, spec.max_batch_size))
        self.spec = spec
        known = {(r.spec.replica_id, r.spec.address): r for r in self.replicas}
        if known:
            self._had_replicas_at = _now()
        self.replicas = []
        for replica_spec in spec.replicas:
            key = (replica_spec.replica_id, replica_spec.address)
            self.replicas.append(known.pop(key) if key in known else LiveReplica(replica_spec))
        for replica in known.values():
            replica.leave()
        self.wake()

    def _read_by(self, codec: EntityCodec | None) -> None:
        """From now on requests are read by `codec`; those that wait begin anew."""
        self.codec = codec
        if self.joiner is not None:
            self.joiner.close()
        self.joiner = None if codec is None else Joiner(self, codec)

    @property
    def capacity(self) -> int:
        """Requests that are admitted at once."""
        at_replicas = self.spec.max_in_flight * max(1, len(self.replicas))
        return at_replicas + self.limits.max_waiting

    @property
    def lanes(self) -> int:
        """Requests on the wire to one replica at once."""
        if self.codec is None or not self.codec.can_join(params=""):
            return self.spec.max_in_flight
        beside = self.joiner is not None and self.joiner.mean_exchange_s >= SLOW_EXCHANGE_S
        return self.spec.instance_count + beside

    def idle_instances(self) -> int:
        """Instances of all healthy replicas that have nothing to do, as far as is known here."""
        return sum(
            max(0, self.spec.instance_count - replica.in_flight)
            for replica in self.replicas
            if not replica.failures
        )

    def leave(self) -> None:
        """The entity is no longer served: waiting requests look for another one."""
        self.is_gone = True
        if self.joiner is not None:
            self.joiner.close()
        for replica in self.replicas:
            replica.leave()
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def try_acquire(self) -> LiveReplica | None:
        """The least busy replica that may take another request, None where there is none."""
        best: LiveReplica | None = None
        lanes = self.lanes
        for replica in self.replicas:
            if replica.failures:
                if replica.in_flight or replica.not_before > _now():
                    continue
            elif replica.in_flight >= lanes:
                continue
            if best is None or replica.in_flight < best.in_flight:
                best = replica
        if best is not None:
            best.in_flight += 1
        return best

    async def acquire(self, message: str, *, is_retry: bool) -> LiveReplica | None:
        """Wait for a replica; give it back with `release` or `fail`.

        Args:
            message: Why there is no replica, where there is none.
            is_retry: The request was admitted before: it is not turned away for a full queue.

        Returns:
            None where the entity is gone: look at the newest route.

        Raises:
            Overloaded: The queue is full.
            ReplicaUnavailable: There is no replica, and none was there recently.
        """
        if not self.waiters:
            replica = self.try_acquire()
            if replica is not None:
                return replica
        if self.is_gone:
            return None
        if not self.replicas and not is_retry and not self.is_recovering():
            raise ReplicaUnavailable(message)
        if not is_retry and len(self.waiters) >= self.limits.max_waiting:
            raise Overloaded(TOO_MANY)
        return await self._wait(message)

    async def _wait(self, message: str) -> LiveReplica | None:
        waiter: asyncio.Future[LiveReplica | None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            while True:
                done, _ = await asyncio.wait([waiter], timeout=self.limits.recovery_s)
                if done:
                    return waiter.result()
                if all(replica.failures for replica in self.replicas):
                    raise ReplicaUnavailable(message or "No replica answers now. Try again.")
        except asyncio.CancelledError:
            # Maybe in the very moment in which a replica was assigned.
            assigned = waiter.result() if waiter.done() and not waiter.cancelled() else None
            if assigned is not None:
                self.release(assigned, has_answered=False)
            raise
        finally:
            if not waiter.done():
                waiter.cancel()
                self.waiters.remove(waiter)

    def release(self, replica: LiveReplica, *, has_answered: bool = True) -> None:
        """The request at `replica` is over."""
        replica.in_flight -= 1
        if has_answered:
            replica.failures = 0
        if self.waiters:
            self.wake()

    def fail(self, replica: LiveReplica) -> None:
        """The replica did not answer: pause before the next try."""
        replica.in_flight -= 1
        replica.failures += 1
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(replica.failures - 1, 10))
        replica.not_before = _now() + pause
        asyncio.get_running_loop().call_later(pause + 0.001, self.wake)
        if self.waiters:
            self.wake()

    def wake(self) -> None:
        """Give free replicas to those who wait, the first first."""
        if self.joiner is not None:
            self.joiner.pump()
        while self.waiters:
            if self.waiters[0].done():
                self.waiters.popleft()
                continue
            replica = self.try_acquire()
            if replica is None:
                return
            self.waiters.popleft().set_result(replica)

    def is_recovering(self) -> bool:
        """Whether there were replicas a short while ago."""
        return _now() - self._had_replicas_at < self.limits.recovery_s


class LiveRoute:
    """An endpoint."""

    def __init__(
        self, spec: Route, limits: Limits, reload_soon: Callable[[], None] = lambda: None
    ) -> None:
        self.spec = spec
        self.limits = limits
        self._reload_soon = reload_soon
        self.entities: dict[str, LiveEntity] = {}
        self.update(spec)

    def update(self, spec: Route) -> None:
        """Take over a newly published state."""
        self.spec = spec
        known = self.entities
        self.entities = {}
        for entity in spec.entities:
            live = known.pop(entity.name, None)
            if live is None:
                live = LiveEntity(entity, self.limits, self._reload_soon)
            else:
                live.update(entity)
            self.entities[entity.name] = live
        for gone in known.values():
            gone.leave()

    def leave(self) -> None:
        """The endpoint was deleted."""
        for entity in self.entities.values():
            entity.leave()

    def level_of(self, principal: Principal) -> Level | None:
        """The caller's highest level, None for a stranger."""
        if principal.is_admin:
            return Level.CAN_MANAGE
        spec = self.spec
        return highest(
            (
                spec.user_levels.get(principal.user_id, ""),
                *(spec.group_levels.get(group, "") for group in principal.groups),
            )
        )

    def choose(self, name: str | None) -> LiveEntity | None:
        """The entity that `name` addresses, else one by traffic share; None where none is served.

        Raises:
            EndpointDoesNotExist: There is no entity of this name.
        """
        if name is not None:
            if name not in self.entities:
                raise EndpointDoesNotExist(
                    f"Endpoint '{self.spec.endpoint_name}' serves no entity '{name}'."
                )
            return self.entities[name]
        entities = list(self.entities.values())
        if len(entities) <= 1:
            return entities[0] if entities else None
        sharing = [e for e in entities if e.spec.traffic_percentage > 0] or entities
        able = [e for e in sharing if e.replicas] or sharing
        weights = [e.spec.traffic_percentage or 1 for e in able]
        return random.choices(able, weights)[0]  # noqa: S311 - a share, not a secret


def _now() -> float:
    return asyncio.get_running_loop().time()
