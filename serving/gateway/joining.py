"""Joins the rows of concurrent callers into one request to Triton.

Triton spends some fifty microseconds on each request before its batcher sees it, and the model's
process as much again; for small requests that is more than the model needs. So while a replica is
busy, requests gather here, and when it has room those that fit together (same parameters, same
shape of a row) travel as one. Nobody waits for company while the replica is idle, with one
exception: the callers of a slow batch that was just answered are given a moment to come back, since
the first of them would else take the model for itself alone.

A joined request that fails is halved until the failing one is alone; requests that had a replica
when it broke go alone from then on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from serving.errors import ModelRaised, NotBatchable, Overloaded, ReplicaUnavailable, ServingError
from serving.gateway.calls import TOO_MANY, Call, Moved, check_retry
from serving.gateway.replies import ReplicaFull, SharedMemoryFull, output_of
from serving.gateway.transport import Exchange, Reply
from serving.protocol.answers import Answer, split_answer, unpack_answer
from serving.protocol.codec import EntityCodec
from serving.protocol.wire import Part

if TYPE_CHECKING:
    from serving.gateway.routing import LiveEntity, LiveReplica

log = logging.getLogger(__name__)

LINGER_SHARE = 0.2
"""Of a batch's time: for how long its callers are awaited."""
LONGEST_LINGER_S = 0.005
SHORTEST_LINGER_S = 0.001
"""The event loop's timers are no finer."""
LOOK_S = 0.5
MEAN_OVER = 16


class Job:
    """A part of a call that waits for its answer.

    Times are of `time.perf_counter`: the event loop's own clock counts milliseconds.
    """

    __slots__ = ("answer", "call", "group", "key", "params", "part", "since")

    def __init__(
        self,
        part: Part,
        params: str,
        call: Call,
        key: tuple[object, ...],
        answer: asyncio.Future[Answer],
    ) -> None:
        self.part = part
        self.params = params
        self.call = call
        self.key = key
        self.answer = answer
        self.since = time.perf_counter()
        self.group: Group | None = None  # while a replica has it


class Group:
    """Jobs that travel as one request; `wanted` of them still have a caller."""

    __slots__ = ("exchange", "jobs", "replica", "sent_at", "wanted")

    def __init__(self, replica: LiveReplica, jobs: list[Job], sent_at: float) -> None:
        self.replica = replica
        self.jobs = jobs
        self.sent_at = sent_at
        self.wanted = len(jobs)
        self.exchange: Exchange | None = None


class Joiner:
    """Sends the jobs of one served entity for as long as it reads its input in the same way.

    Args:
        entity: Has the replicas.
        codec: How its requests are read and written.
    """

    def __init__(self, entity: LiveEntity, codec: EntityCodec) -> None:
        self._entity = entity
        self.codec = codec
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[object, ...], deque[Job]] = {}  # the key that waits longest first
        self._sealed: deque[list[Job]] = deque()  # go as they are, and first
        self._rows = 0  # of those in `_waiting`
        self._jobs = 0  # all, also those at a replica
        self._pump_is_due = False
        self._linger: asyncio.TimerHandle | None = None
        self._rows_awaited = 0
        self._look: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._alone = 0
        self.mean_exchange_s = 0.0  # of the last few

    async def infer(self, part: Part, params: str, call: Call, message: str) -> Answer:
        """The answer to a part of a call; see `enqueue`.

        Raises:
            ServingError: What the replica or the model answered.
        """
        job = self.enqueue(part, params, call, message)
        try:
            return await job.answer
        except asyncio.CancelledError:
            self._forget(job)
            raise
        finally:
            self._jobs -= 1

    def enqueue(self, part: Part, params: str, call: Call, message: str) -> Job:
        """Let a part of a call wait for its answer.

        Who asks has to say `leave` when it does not want the answer any more, and `has_left` when
        it has it.

        Args:
            part: Rows that travel together.
            params: The parameters' JSON text.
            call: Keeps count of what failed.
            message: Why there is no replica, where there is none.

        Raises:
            Overloaded: The queue is full.
            ReplicaUnavailable: There is no replica, and none was there recently.
            Moved: Look at the newest route.
        """
        entity = self._entity
        if self._is_closed:
            raise Moved
        if not entity.replicas and call.failing_since is None and not entity.is_recovering():
            raise ReplicaUnavailable(message)
        if call.failing_since is None and self._jobs >= entity.capacity:
            raise Overloaded(TOO_MANY)
        answer: asyncio.Future[Answer] = self._loop.create_future()
        job = Job(part, params, call, self._key_of(part, params), answer)
        self._jobs += 1
        self._wait(job)
        self._pump_soon()
        return job

    def leave(self, job: Job) -> None:
        """The caller is gone, and the job's answer canceled."""
        self._jobs -= 1
        self._forget(job)

    def has_left(self) -> None:
        """A job has its answer."""
        self._jobs -= 1

    def close(self) -> None:
        """The entity is gone or reads its input in another way; what is under way is answered."""
        self._is_closed = True
        groups = [*self._sealed, *self._waiting.values()]
        self._sealed.clear()
        self._waiting.clear()
        for group in groups:
            for job in group:
                _refuse(job, Moved())
        for timer in (self._linger, self._look):
            if timer is not None:
                timer.cancel()

    def pump(self) -> None:
        """Send what can be sent now."""
        self._pump_is_due = False
        while self._sealed or self._waiting:
            if not self._sealed and self._is_lingering():
                return
            replica = self._entity.try_acquire()
            if replica is None:
                self._look_later()
                return
            group = self._take()
            if group:
                self._send(replica, group)
            else:
                self._entity.release(replica, has_answered=False)

    # ---------------------------------------------------------------- gathering

    def _key_of(self, part: Part, params: str) -> tuple[object, ...]:
        if self.codec.can_join(params):
            return self.codec.join_key(part, params)
        self._alone += 1
        return (self._alone,)

    def _wait(self, job: Job) -> None:
        queue = self._waiting.get(job.key)
        if queue is None:
            queue = self._waiting[job.key] = deque()
        queue.append(job)
        self._rows += job.part.rows

    def _pump_soon(self) -> None:
        """After this turn of the loop: all that it has read is then here."""
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self.pump)

    def _take(self) -> list[Job]:
        """The next group: at most the rows that the model takes, and its share of what waits."""
        if self._sealed:
            return [job for job in self._sealed.popleft() if not job.answer.done()]
        key, queue = next(iter(self._waiting.items()))
        idle = self._entity.idle_instances() + 1  # the one just taken counts as busy
        room = min(self._entity.spec.max_batch_size, max(1, -(-self._rows // idle)))
        group: list[Job] = []
        while queue and (not group or queue[0].part.rows <= room):
            job = queue.popleft()
            self._rows -= job.part.rows
            if not job.answer.done():  # the caller may be gone
                room -= job.part.rows
                group.append(job)
        del self._waiting[key]
        if queue:
            self._waiting[key] = queue  # behind the others
        return group

    def _is_lingering(self) -> bool:
        if self._linger is None:
            return False
        if self._rows < self._rows_awaited:
            return True
        self._linger.cancel()
        self._linger = None
        return False

    def _begin_linger(self, rows: int, exchange_s: float) -> None:
        """Callers with `rows` were just answered: let them come back before the next is sent."""
        pause = min(LONGEST_LINGER_S, LINGER_SHARE * exchange_s)
        if pause < SHORTEST_LINGER_S or rows < 2:
            return
        if self._linger is not None:
            self._linger.cancel()
        self._rows_awaited = min(self._entity.spec.max_batch_size, self._rows + rows)
        self._linger = self._loop.call_later(pause, self._end_linger)

    def _end_linger(self) -> None:
        self._linger = None
        self.pump()

    # ---------------------------------------------------------------- sending

    def _send(self, replica: LiveReplica, jobs: list[Job]) -> None:
        group = Group(replica, jobs, time.perf_counter())
        for job in jobs:
            job.group = group

        def done(reply: Reply | ReplicaUnavailable) -> None:
            self._settle(group, reply)

        try:
            pieces = self.codec.write([job.part for job in jobs], jobs[0].params)
            group.exchange = replica.pool.submit(pieces, done)
        except Exception:  # a fault of ours must cost neither the replica nor the caller's time
            log.exception("a request to replica %s could not be sent", replica.spec.replica_id)
            self._entity.release(replica, has_answered=False)
            for job in jobs:
                job.group = None
                _refuse(job, ServingError("Sorry, the request could not be sent to the model."))

    def _forget(self, job: Job) -> None:
        """The caller is gone; a request that nobody waits for any more is given up."""
        group = job.group
        if group is None:
            return
        group.wanted -= 1
        if group.wanted == 0 and group.exchange is not None:
            group.exchange.abort()
            self._entity.release(group.replica, has_answered=False)
            self._pump_soon()

    def _settle(self, group: Group, reply: Reply | ReplicaUnavailable) -> None:
        jobs = group.jobs
        for job in jobs:
            job.group = None
        try:
            if not isinstance(reply, Reply):
                raise reply
            answer = unpack_answer(output_of(reply))
            answers = split_answer(answer, [job.part.rows for job in jobs])
        except (ServingError, ValueError) as exc:
            self._give_back(group.replica, exc)
            self._fail(jobs, exc)
        else:
            now = time.perf_counter()
            self.mean_exchange_s += (now - group.sent_at - self.mean_exchange_s) / MEAN_OVER
            self._entity.release(group.replica)
            for job, own in zip(jobs, answers, strict=True):
                job.call.note_times(now - job.since, answer.compute_s)
                if not job.answer.done():
                    job.answer.set_result(own)
            self._begin_linger(sum(job.part.rows for job in jobs), now - group.sent_at)
        self._pump_soon()

    def _give_back(self, replica: LiveReplica, exc: ServingError | ValueError) -> None:
        if isinstance(exc, ReplicaUnavailable) and not isinstance(exc, SharedMemoryFull):
            self._entity.fail(replica)
            if not isinstance(exc, ReplicaFull):
                self._entity.reload_soon()
        else:
            self._entity.release(replica)

    def _fail(self, jobs: list[Job], exc: ServingError | ValueError) -> None:
        """Halve a group of which one may be at fault; else try again what may be tried again."""
        if len(jobs) > 1 and isinstance(exc, (ModelRaised, NotBatchable, SharedMemoryFull)):
            middle = len(jobs) // 2
            self._sealed.extendleft((jobs[middle:], jobs[:middle]))
            return
        again: list[Job] = []
        for job in jobs:
            try:
                check_retry(
                    job.call,
                    exc,
                    recovery_s=self._entity.limits.recovery_s,
                    is_gone=self._entity.is_gone or self._is_closed,
                )
            except (ServingError, Moved) as final:
                _refuse(job, final)
            else:
                again.append(job)
        if any(job.call.breaks for job in again):
            self._sealed.extend([job] for job in again)
        elif again:
            self._sealed.append(again)

    # ---------------------------------------------------------------- no replica

    def _look_later(self) -> None:
        if self._look is None:
            self._look = self._loop.call_later(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        """Tell those who waited too long that no replica answers."""
        self._look = None
        entity = self._entity
        if all(replica.failures for replica in entity.replicas):
            limit = time.perf_counter() - entity.limits.recovery_s
            for job in [*_all(self._sealed), *_all(self._waiting.values())]:
                if job.since < limit:
                    _refuse(job, ReplicaUnavailable("No replica answers now. Try again."))
        self.pump()


def _all(groups: Iterable[Iterable[Job]]) -> list[Job]:
    return [job for group in groups for job in group]


def _refuse(job: Job, exc: Exception) -> None:
    if not job.answer.done():
        job.answer.set_exception(exc)
