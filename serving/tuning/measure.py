"""Measure a loaded model: a sweep over batch sizes, and a closed loop of callers.

The sweep goes straight to the replica; the callers go through the gateway's own joining of rows, so
that what is measured is what they will get. The decisions are `policy`'s.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

from serving.errors import DeadlineExceeded, NotBatchable, ReplicaUnavailable, ServingError
from serving.example import ExampleRows, ask
from serving.gateway.calls import Call, Moved
from serving.gateway.routing import Limits, LiveEntity
from serving.gateway.transport import ReplicaPool
from serving.row_probe import rows_of
from serving.spec import Backend, RouteEntity, RouteReplica
from serving.tuning import policy
from serving.tuning.policy import Setting, Sweep
from serving.tuning.profile import SweepStep, Trial
from serving.tuning.usage import Usage, usage_of

LEAST_RUNS = 3
STEP_S = 0.4
NOISY = 0.15  # a step whose runs spread further is measured for twice as long
WARM_UP_SHARE = 0.2
RECOVERY_S = 2.0
NAME = "measured"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The replica to measure.

    Attributes:
        address: `host:port`.
        server_pid: Its server's process, where it runs on this machine.
        call_timeout_s: For each call.
        gateways: Processes over which callers are spread; each joins the rows of its own.
    """

    address: str
    example: ExampleRows
    server_pid: int | None
    call_timeout_s: float
    gateways: int = 1


def sweep(target: Target, *, most_rows: int, limit_s: float) -> Sweep:
    """Measure one request after the other, of 1, 2, 4, ... rows.

    Args:
        target: A replica of one instance.
        most_rows: Rows that its Triton takes at once.
        limit_s: After this time no larger batch is begun.

    Raises:
        NotBatchable: Another number of rows came back than was sent.
        ServingError: Not even one row was answered.
    """

    async def run() -> Sweep:
        pool = ReplicaPool(target.address)
        try:
            return await _sweep(pool, target, most_rows, limit_s)
        finally:
            pool.close()
            await asyncio.sleep(0)  # lets the connections close

    return _run(run())


def closed_loop(target: Target, setting: Setting, *, callers: int, for_s: float) -> Trial:
    """Measure a setting under callers that each send a row, wait for its answer, and send again.

    Raises:
        ServingError: A call failed.
    """
    return _run(_closed_loop(target, setting, callers, for_s))


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the gateway's
        return runner.run(work)


# ---------------------------------------------------------------- the sweep


async def _sweep(pool: ReplicaPool, target: Target, most_rows: int, limit_s: float) -> Sweep:
    before, started = usage_of(target.server_pid), time.monotonic()
    steps: list[SweepStep] = []
    stopped_because = f"{most_rows} rows are the most that was tried."
    row_bytes, sizes = 0, policy.batch_sizes(most_rows)
    for rows in sizes:
        left_s = limit_s - (time.monotonic() - started)
        if steps and not _fits(steps[-1], left_s):
            stopped_because = f"The time for measuring was used up after {steps[-1].rows} rows."
            break
        try:
            step, row_bytes = await _step(pool, target, rows, min(STEP_S, limit_s / len(sizes)))
        except NotBatchable:
            raise
        except ServingError as exc:
            if not steps:
                raise
            stopped_because = f"A call of {rows} rows failed: {exc.message}"
            break
        steps.append(step)
        if policy.why_stop(steps):
            # Once more: whatever else the machine did can only have made it slower.
            again, _ = await _step(pool, target, rows, min(STEP_S, limit_s / len(sizes)))
            steps[-1] = min(step, again, key=lambda each: each.latency_ms)
            stopped_because = policy.why_stop(steps) or stopped_because
            if policy.why_stop(steps):
                break
    after, elapsed_s = usage_of(target.server_pid), time.monotonic() - started
    return Sweep(
        steps=tuple(steps),
        stopped_because=stopped_because,
        row_bytes=row_bytes,
        is_joined=target.example.is_joined,
        busy_cores=_busy_cores(before, after, elapsed_s),
        memory_bytes=after.memory_bytes if after else None,
    )


def _fits(latest: SweepStep, left_s: float) -> bool:
    """Whether the next size, at worst twice as slow, can be measured in the time left."""
    return (LEAST_RUNS + 1) * 2 * latest.latency_ms / 1000 < left_s


def _busy_cores(before: Usage | None, after: Usage | None, elapsed_s: float) -> float | None:
    if before is None or after is None:
        return None
    return round((after.cpu_s - before.cpu_s) / elapsed_s, 3)


async def _step(
    pool: ReplicaPool, target: Target, rows: int, for_s: float
) -> tuple[SweepStep, int]:
    """One size, and the bytes of a row in it; the first call warms up."""
    request = target.example.request(range(rows))
    output = await ask(pool, request, timeout_s=target.call_timeout_s)
    rows_of(target.example.answer(output), rows)
    times_ms: list[float] = []
    end = time.monotonic() + for_s
    is_extended = False
    while len(times_ms) < LEAST_RUNS or time.monotonic() < end:
        started = time.monotonic()
        await ask(pool, request, timeout_s=target.call_timeout_s)
        times_ms.append((time.monotonic() - started) * 1000)
        if time.monotonic() >= end and not is_extended and _is_noisy(times_ms):
            is_extended, end = True, time.monotonic() + for_s
    latency_ms = statistics.median(times_ms)
    step = SweepStep(
        rows=rows,
        runs=len(times_ms),
        latency_ms=round(latency_ms, 3),
        rows_per_s=round(rows * 1000 / latency_ms, 1),
    )
    return step, (sum(map(len, request)) + len(output)) // rows


def _is_noisy(times_ms: Sequence[float]) -> bool:
    if len(times_ms) < LEAST_RUNS:
        return False
    quarter, middle, three_quarters = statistics.quantiles(times_ms, n=4)
    return three_quarters - quarter > NOISY * middle


# ---------------------------------------------------------------- the closed loop


async def _closed_loop(target: Target, setting: Setting, callers: int, for_s: float) -> Trial:
    entities = [_entity_of(target, setting) for _ in range(target.gateways)]
    params = target.example.params
    parts = [target.example.part([row]) for row in range(min(callers, target.example.rows))]
    begin = time.monotonic() + WARM_UP_SHARE * for_s
    end = begin + for_s
    times_ms: list[float] = []

    async def call(number: int) -> None:
        part, joiner = parts[number % len(parts)], entities[number % len(entities)].joiner
        while joiner is not None and (started := time.monotonic()) < end:
            answered = Call(NAME, None, b"")
            async with asyncio.timeout(target.call_timeout_s):
                await joiner.infer(part, params, answered, "The replica has ended.")
            now = time.monotonic()
            if begin <= now < end:
                times_ms.append((now - started) * 1000)

    tasks = [asyncio.create_task(call(number)) for number in range(callers)]
    try:
        await asyncio.gather(*tasks)
    except TimeoutError as exc:
        message = f"The model did not answer within {target.call_timeout_s:g} s."
        raise DeadlineExceeded(message) from exc
    except Moved as exc:
        raise ReplicaUnavailable("The replica ended while it was measured.") from exc
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for entity in entities:
            entity.leave()
        await asyncio.sleep(0)  # lets the connections close
    times_ms.sort()
    return Trial(
        instance_count=setting.instance_count,
        threads_per_instance=setting.threads_per_instance,
        max_batch_size=setting.max_batch_size,
        max_queue_delay_microseconds=setting.max_queue_delay_microseconds,
        callers=callers,
        requests_per_s=round(len(times_ms) / for_s, 1),
        p50_ms=round(_percentile(times_ms, 0.5), 3),
        p99_ms=round(_percentile(times_ms, 0.99), 3),
    )


def _entity_of(target: Target, setting: Setting) -> LiveEntity:
    """The replica as a gateway would see it, if it served."""
    spec = RouteEntity(
        name=NAME,
        entity_name=NAME,
        entity_version="",
        traffic_percentage=100,
        backend=Backend.TRITON,
        signature=target.example.signature,
        max_batch_size=setting.max_batch_size,
        max_in_flight=policy.queue_size(setting.max_batch_size),
        instance_count=setting.instance_count,
        replicas=(RouteReplica(replica_id=NAME, address=target.address),),
    )
    return LiveEntity(spec, Limits(recovery_s=RECOVERY_S), lambda: None)


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
