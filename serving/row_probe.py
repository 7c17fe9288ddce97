"""The batch eligibility probe: may a model's requests share a call, and does it gain from that?

One, two and eight rows of the input example, straight to a replica. The rows' answers in a batch
must be those that they get alone; a model that does not answer twice alike is let pass, since
nothing can be said of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from serving.errors import NotBatchable
from serving.example import ExampleRows, ask
from serving.gateway.transport import ReplicaPool
from serving.protocol.answers import Answer
from serving.tuning.profile import ProbeResult

PROBE_ROWS = 8
TIMED_RUNS = 3
ROW_BY_ROW = 7.0
"""Eight rows that take so many times as long as one were not computed together."""
RELATIVE_TOLERANCE = 1e-2
TOLERANCE_OF_LARGEST = 1e-3  # of the row's largest number: a batch adds in another order
ABSOLUTE_TOLERANCE = 1e-5
NOT_DETERMINISTIC = (
    "The model is not deterministic: the same row got two answers, so row independence was not "
    "checked."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows that were sent together, and the answer to each."""

    rows: tuple[int, ...]
    answers: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the probe saw.

    Attributes:
        alone: The answer to each row by itself.
        again: The first row's answer, asked for once more.
        batches: The same rows in company.
        one_ms: How long one row takes; None: not timed.
        eight_ms: How long eight take.
    """

    alone: tuple[Any, ...]
    again: Any
    batches: tuple[Batch, ...]
    one_ms: float | None = None
    eight_ms: float | None = None


def judge(seen: Seen) -> ProbeResult:
    """What that means.

    Raises:
        NotBatchable: A row's answer depends on the rows beside it.
    """
    is_deterministic = alike(seen.alone[0], seen.again)
    checked = max((len(batch.rows) for batch in seen.batches), default=0)
    if is_deterministic:
        for batch in seen.batches:
            _check(batch, seen.alone)
    found = ProbeResult(
        rows_checked=checked if is_deterministic else 0,
        is_row_independent=True if is_deterministic and checked > 1 else None,
        warning="" if is_deterministic else NOT_DETERMINISTIC,
    )
    return found if seen.one_ms is None else with_times(found, seen.one_ms, seen.eight_ms)


def with_times(found: ProbeResult, one_ms: float, eight_ms: float | None) -> ProbeResult:
    """What the probe found, with what the times of one row and of eight tell beside it."""
    if not eight_ms:
        return found
    ratio = eight_ms / one_ms
    warnings = [NOT_DETERMINISTIC] if NOT_DETERMINISTIC in found.warning else []
    if ratio >= ROW_BY_ROW:
        warnings.append(
            f"8 rows took {ratio:.1f} times as long as 1 ({eight_ms:.1f} ms against "
            f"{one_ms:.1f} ms): its time grows with each row, as in a loop over them, so batching "
            "gains nothing."
        )
    return replace(found, speedup_of_8=round(PROBE_ROWS / ratio, 2), warning=" ".join(warnings))


def _check(batch: Batch, alone: Sequence[Any]) -> None:
    for row, answer in zip(batch.rows, batch.answers, strict=True):
        if not alike(answer, alone[row]):
            raise NotBatchable(
                f"A row's answer depends on the rows beside it: row {row + 1} of the input "
                f"example got {_shown(alone[row])} alone and {_shown(answer)} among "
                f"{len(batch.rows)} rows, so requests must not share a call."
            )


def _shown(answer: Any) -> str:
    text = str(answer.tolist() if isinstance(answer, np.ndarray) else answer)
    return text if len(text) <= 60 else f"{text[:57]}..."


def alike(one: Any, other: Any) -> bool:
    """Whether two answers to a row are the same: texts exactly, floats nearly."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, (np.ndarray, np.generic, float)):
        return _alike_numbers(np.asarray(one), np.asarray(other))
    return bool(one == other)


def _alike_numbers(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f" or other.dtype.kind not in "fiu":
        return bool(np.array_equal(one, other))
    finite = np.abs(one[np.isfinite(one)])
    largest = float(finite.max()) if finite.size else 0.0
    return bool(
        np.allclose(
            one.astype(np.float64),
            other.astype(np.float64),
            rtol=RELATIVE_TOLERANCE,
            atol=max(ABSOLUTE_TOLERANCE, TOLERANCE_OF_LARGEST * largest),
            equal_nan=True,
        )
    )


def rows_of(answer: Answer, rows: int) -> tuple[Any, ...]:
    """The answer to each of `rows` rows.

    Raises:
        NotBatchable: There are not as many.
    """
    found = answer.rows
    if found != rows:
        returned = "a single value" if found is None else f"{found} outputs"
        raise NotBatchable(
            f"The model returned {returned} for {rows} inputs; it cannot be batched."
        )
    return tuple(tuple(column[row] for column in answer.columns) for row in range(rows))


def probe_rows(
    *, address: str, example: ExampleRows, most_rows: int, limit_s: float, call_timeout_s: float
) -> ProbeResult:
    """Probe a replica that runs Triton.

    Args:
        address: `host:port`.
        example: The rows to send.
        most_rows: Rows that Triton takes at once.
        limit_s: After this time no further batch is begun.
        call_timeout_s: For each call.

    Raises:
        NotBatchable: Another number of rows came back, or rows depend on each other.
        ServingError: The replica did not answer, or the model failed.
    """
    return judge(asyncio.run(_look(address, example, most_rows, limit_s, call_timeout_s)))


async def _look(
    address: str, example: ExampleRows, most_rows: int, limit_s: float, call_timeout_s: float
) -> Seen:
    pool = ReplicaPool(address)
    end = time.monotonic() + limit_s

    async def send(rows: Sequence[int]) -> tuple[tuple[Any, ...], float]:
        request = example.request(rows)
        started = time.monotonic()
        output = await ask(pool, request, timeout_s=call_timeout_s)
        elapsed_ms = (time.monotonic() - started) * 1000
        return rows_of(example.answer(output), len(rows)), elapsed_ms

    try:
        return await _send_all(send, min(example.rows, PROBE_ROWS), most_rows, end)
    finally:
        pool.close()
        await asyncio.sleep(0)  # lets the connections close


async def _send_all(send: Any, distinct: int, most_rows: int, end: float) -> Seen:
    (first,), _ = await send([0])  # the first call warms up, so it is not timed
    (again,), first_ms = await send([0])
    alone, times, batches, eights = [first], [first_ms], [], []
    for row in range(1, distinct):
        if time.monotonic() > end:
            break
        (answer,), elapsed_ms = await send([row])
        alone.append(answer)
        times.append(elapsed_ms)
    while len(times) < TIMED_RUNS and time.monotonic() < end:
        times.append((await send([0]))[1])
    for size in (2, PROBE_ROWS):
        rows = tuple(row % len(alone) for row in range(size))
        for _ in range(1 if size == 2 else 1 + TIMED_RUNS):
            if size > most_rows or time.monotonic() > end:
                break
            answers, elapsed_ms = await send(rows)
            batches.append(Batch(rows=rows, answers=answers))
            if size == PROBE_ROWS:
                eights.append(elapsed_ms)
    return Seen(
        alone=tuple(alone),
        again=again,
        batches=tuple(batches),
        one_ms=min(times),  # whatever else the machine does can only add to them
        eight_ms=min(eights, default=None),
    )
