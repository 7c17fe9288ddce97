"""The batching that a profile's measurements speak for, with a sentence for each setting.

Pure, like `policy`, whose rules it applies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from serving.spec import Batching
from serving.tuning.policy import (
    FULL_BATCHES_QUEUED,
    LARGEST_BATCH,
    LEAST_QUEUE,
    WORTH_A_DELAY,
    WORTH_AN_INSTANCE,
    Node,
    Progress,
    Sweep,
    best_step,
    best_trial,
    knee,
    queue_size,
    rows_that_fit,
    rows_words,
    threads_for,
    why_no_delay,
    why_not_instances,
)
from serving.tuning.profile import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to serve with, and a sentence for each field."""

    batching: Batching
    reasons: dict[str, str]
    trials: tuple[Trial, ...]


def choose(progress: Progress, node: Node) -> Choice:
    """The batching that the measurements speak for; `progress` has a sweep."""
    sweep = progress.sweep
    if sweep is None:
        raise ValueError("There is no sweep to choose from.")
    best = best_trial(progress.trials) if progress.trials else None
    count = best.instance_count if best else 1
    delay_us = best.max_queue_delay_microseconds if best else 0
    fits = rows_that_fit(node.shared_memory_bytes, sweep.row_bytes, count)
    size = min(knee(sweep.steps).rows, fits)
    batching = Batching(
        max_batch_size=size,
        max_queue_delay_microseconds=delay_us,
        instance_count=count,
        max_queue_size=queue_size(size),
        threads_per_instance=threads_for(node.cores, count),
    )
    reasons = {
        "max_batch_size": _why_size(sweep, size, fits),
        "instance_count": _why_count(progress, node),
        "max_queue_delay_microseconds": _why_delay(progress, node),
        "threads_per_instance": (
            f"Half of the {node.cores} cores, shared among the instances; the rest is for Triton "
            "and the gateway."
        ),
        "preferred_batch_size": "None: Triton takes what waits. Other sizes were not tried.",
        "max_queue_size": f"{FULL_BATCHES_QUEUED} full batches, at least {LEAST_QUEUE} requests.",
    }
    trials = tuple(
        replace(trial, is_chosen=trial is best and not trial.failure) for trial in progress.trials
    )
    return Choice(batching=batching, reasons=reasons, trials=trials)


def memory_bound(sweep: Sweep, node: Node, instances: int) -> int | None:
    """The rows that shared memory has room for, where that is less than a large batch."""
    fits = rows_that_fit(node.shared_memory_bytes, sweep.row_bytes, instances)
    return fits if fits < LARGEST_BATCH else None


def _why_size(sweep: Sweep, size: int, fits: int) -> str:
    steps = sweep.steps
    at, best = knee(steps), best_step(steps)
    if size < at.rows:
        return (
            f"Shared memory has room for {rows_words(fits)} of {sweep.row_bytes:,} bytes; "
            f"{at.rows} would be the quickest batch."
        )
    if at.rows == best.rows:
        return f"{rows_words(at.rows)} in a call gave the most rows a second: {at.rows_per_s:,.0f}."
    share = at.rows_per_s / best.rows_per_s
    return (
        f"{rows_words(at.rows)} in a call gave {at.rows_per_s:,.0f} rows/s, {share:.0%} of the "
        f"best ({best.rows_per_s:,.0f} with {best.rows}); larger batches only answer later."
    )


def _why_count(progress: Progress, node: Node) -> str:
    if not progress.trials:
        return f"One: other numbers were not tried. {progress.ended_because}".strip()
    first = progress.trials[0]
    if first.failure:
        return f"One: it could not be measured under load. {first.failure}"
    best = best_trial(progress.trials)
    plain = [t for t in progress.trials if t.max_queue_delay_microseconds == 0]
    if best.instance_count > 1:
        chosen = next(t for t in plain if t.instance_count == best.instance_count)
        gain = chosen.requests_per_s / first.requests_per_s
        return (
            f"{chosen.instance_count} instances answered {chosen.requests_per_s:,.0f} requests a "
            f"second under {chosen.callers} callers, {gain:.1f} times as many as one."
        )
    rejected = next((t for t in plain if t.instance_count > 1), None)
    if rejected is None:
        why = progress.ended_because
        if progress.sweep is not None:
            why = why_not_instances(2, progress.sweep, node) or why
        return f"One: two were not tried. {why}".strip()
    if rejected.failure:
        return f"One: two could not be measured. {rejected.failure}"
    change = rejected.requests_per_s / first.requests_per_s - 1
    return (
        f"One: two answered {_percent(change)} requests a second, and a second copy of the model "
        f"has to bring {WORTH_AN_INSTANCE - 1:.0%}."
    )


def _why_delay(progress: Progress, node: Node) -> str:
    sweep = progress.sweep
    tried = next((t for t in progress.trials if t.max_queue_delay_microseconds), None)
    if tried is None:
        why = why_no_delay(sweep, node) if sweep else ""
        return f"None: it was not tried. {why or progress.ended_because}".strip()
    if tried.failure:
        return f"None: it could not be measured. {tried.failure}"
    plain = next(
        t
        for t in progress.trials
        if t.instance_count == tried.instance_count and not t.max_queue_delay_microseconds
    )
    change = tried.requests_per_s / plain.requests_per_s - 1
    words = (
        f"{tried.max_queue_delay_microseconds:,} µs answered {_percent(change)} requests a second"
    )
    if best_trial(progress.trials) is tried:
        return f"Waiting {words} than none."
    return f"None: waiting {words}, and it has to bring {WORTH_A_DELAY - 1:.0%}."


def _percent(change: float) -> str:
    return f"{abs(change):.0%} {'more' if change >= 0 else 'fewer'}"
