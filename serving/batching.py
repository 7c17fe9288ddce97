"""Realised batching, read: what a served entity's replicas batched, in figures and a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from serving.spec import Batching, BatchingSeen, BatchingSpan, BatchSize

FULL = 0.9  # of max_batch_size: so large a mean batch leaves hardly any room
LONELY = 1.5  # rows: below this mean, hardly any call is shared
CARRIES = 4.0  # rows: from this mean on, most of the load is batched
BUSY = 0.5  # of the time: instances that compute so much do not lack traffic
SATURATED = 0.95  # of the time: the rest is the way between two batches
WAITS = 1.5  # times the compute time: longer than a request waits for the batch before its own
US_PER_MS = 1000
MS_PER_S = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Realised:
    """What was batched in a window.

    Attributes:
        is_recent: The window is about the last minute; else all since the servers' start.
        window_s: Its length.
        requests: As Triton counts them: the gateway joins small ones before.
        mean_rows: Rows a batch.
        queue_ms: Mean wait in Triton's queue.
        compute_ms: Mean time of a batch in the model.
        busy: Share of the window in which an instance computed, at most 1.
        sizes: Batches by their rows, smallest first.
        sentence: All that, read.
    """

    is_recent: bool
    window_s: float
    requests: int
    rows: int
    batches: int
    mean_rows: float
    max_batch_size: int
    rows_per_s: float
    queue_ms: float
    compute_ms: float
    busy: float
    sizes: tuple[BatchSize, ...]
    sentence: str


def realised(seen: Sequence[BatchingSeen], batching: Batching) -> Realised | None:
    """Read what the replicas of one served entity batched.

    Args:
        seen: One for each replica.
        batching: What is in force on each.

    Returns:
        The last minute, or all since the start where that minute was quiet; None when no replica
        has said anything yet.
    """
    if not seen:
        return None
    recent = _together([each.recent for each in seen])
    is_recent = recent.rows > 0
    span = recent if is_recent else _together([each.total for each in seen])
    instances = len(seen) * batching.instance_count
    figures = Realised(
        is_recent=is_recent,
        window_s=span.seconds,
        requests=span.requests,
        rows=span.rows,
        batches=span.executions,
        mean_rows=_ratio(span.rows, span.executions),
        max_batch_size=batching.max_batch_size,
        rows_per_s=_ratio(span.rows, span.seconds),
        queue_ms=_ratio(span.queue_ms, span.requests),
        compute_ms=_ratio(span.compute_ms, span.executions),
        busy=min(1.0, _ratio(span.compute_ms, span.seconds * MS_PER_S * instances)),
        sizes=span.sizes,
        sentence="",
    )
    return replace(figures, sentence=sentence(figures, batching))


def sentence(found: Realised, batching: Batching) -> str:
    """What the figures mean and, where something is wrong, what to change."""
    if not found.rows:
        return "No row has reached Triton since it started."
    mean = f"{number(found.mean_rows)} of {found.max_batch_size}"
    times = f"queue {number(found.queue_ms)} ms, compute {number(found.compute_ms)} ms"
    at = f"Mean batch {mean} at {number(found.rows_per_s)} rows/s"
    if not found.is_recent:
        batches = "batch" if found.batches == 1 else "batches"
        return (
            f"No rows in the last minute. Since the start the mean batch was {mean}"
            f" ({found.rows:,} rows in {found.batches:,} {batches})."
        )
    if found.max_batch_size == 1:
        pace = f"{number(found.rows_per_s)} rows/s"
        return f"max_batch_size is 1, so nothing is batched: {pace}; {times}."
    if found.mean_rows >= FULL * found.max_batch_size:
        return _full(found, at, times)
    if found.queue_ms > WAITS * found.compute_ms:
        return _held_back(found, batching, at)
    if found.mean_rows < LONELY:
        return f"{at}: {_lonely(found)}"
    if found.mean_rows >= min(CARRIES, FULL * found.max_batch_size):
        return f"{at}: batching carries the load; {times}."
    return f"{at}: some requests share a batch; {times}."


def _full(found: Realised, at: str, times: str) -> str:
    cure = (
        "the replica is saturated; provision more concurrency, or raise max_batch_size if the"
        " profile still gains there."
    )
    full = f"Batches are full ({number(found.mean_rows)} of {found.max_batch_size})"
    if found.queue_ms > found.compute_ms:
        return (
            f"{full} and the queue ({number(found.queue_ms)} ms) is longer than the compute time"
            f" ({number(found.compute_ms)} ms): {cure}"
        )
    if found.busy >= SATURATED:  # then rows wait in the gateway, which Triton does not see
        return f"{full} and the model computes {found.busy:.0%} of the time: {cure}"
    if found.busy < BUSY:
        share = f"{found.busy:.0%}" if found.busy >= 0.01 else "hardly any"
        return f"{at}: batches are full, and the model computes {share} of the time; {times}."
    return f"{at}: batching carries the load, and batches are full; {times}."


def _held_back(found: Realised, batching: Batching, at: str) -> str:
    delay_ms = batching.max_queue_delay_microseconds / US_PER_MS
    words = (
        f"{at}, and yet rows wait {number(found.queue_ms)} ms for"
        f" {number(found.compute_ms)} ms of computing"
    )
    if delay_ms > found.queue_ms / 2:
        return (
            f"{words}: max_queue_delay_microseconds ({batching.max_queue_delay_microseconds:,})"
            " makes them wait for company that does not come; lower it."
        )
    if found.busy < BUSY:
        return f"{words}: they come in bursts, with pauses in between."
    return (
        f"{words}: they do not fit into one batch. Rows of different shapes, or with different"
        " params, are computed apart; more instances or replicas would help."
    )


def _lonely(found: Realised) -> str:
    if found.busy < BUSY:
        return "too little traffic for batching to help."
    return (
        f"the model computes {found.busy:.0%} of the time, one request after the other;"
        " requests that are sent at once would share a batch."
    )


def number(value: float) -> str:
    """A figure as people read it: 0.04, 1.1, 24, 3,100."""
    if value >= 10:
        return f"{value:,.0f}"
    text = f"{value:.1f}" if value >= 0.1 or value == 0 else f"{value:.2g}"
    return text.removesuffix(".0")


def _together(spans: Sequence[BatchingSpan]) -> BatchingSpan:
    """Replicas side by side: their counts add up, their seconds do not."""
    sizes: Counter[int] = Counter()
    for span in spans:
        for size in span.sizes:
            sizes[size.rows] += size.executions
    return BatchingSpan(
        seconds=max(span.seconds for span in spans),
        requests=sum(span.requests for span in spans),
        rows=sum(span.rows for span in spans),
        executions=sum(span.executions for span in spans),
        queue_ms=sum(span.queue_ms for span in spans),
        compute_ms=sum(span.compute_ms for span in spans),
        sizes=tuple(
            BatchSize(rows=rows, executions=count) for rows, count in sorted(sizes.items())
        ),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
