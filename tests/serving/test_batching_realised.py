"""Realised batching: Triton's running sums become spans, and spans become a sentence."""

from __future__ import annotations

import json

import pytest

from serving.batching import realised
from serving.spec import (
    Backend,
    Batching,
    BatchingSeen,
    BatchingSpan,
    BatchSize,
    ReplicaState,
    ReplicaStatus,
    from_json,
    to_json,
)
from serving.triton.batching import BatchingMeter


def stats(sizes: dict[int, int], *, queue_ms: float = 0.0, compute_ms: float = 1.0) -> str:
    """An answer of Triton's: executions by rows, one request a row."""
    rows = sum(size * count for size, count in sizes.items())
    nothing = {"count": 0, "ns": 0}
    return json.dumps(
        {
            "model_stats": [
                {
                    "name": "model",
                    "inference_count": rows,
                    "execution_count": sum(sizes.values()),
                    "inference_stats": {
                        "success": {"count": rows, "ns": 1},
                        "queue": {"count": rows, "ns": int(queue_ms * 1e6) * rows},
                    },
                    "batch_stats": [
                        {
                            "batch_size": size,
                            "compute_input": nothing,
                            "compute_infer": {"count": count, "ns": int(compute_ms * 1e6) * count},
                            "compute_output": nothing,
                        }
                        for size, count in sizes.items()
                    ],
                }
            ]
        }
    )


def test_the_recent_span_covers_about_a_minute_and_the_total_everything() -> None:
    meter = BatchingMeter()
    for second in range(0, 121, 2):
        meter.take(stats({1: second, 4: 2 * second}, queue_ms=3), at=100.0 + second)

    seen = meter.seen()

    assert seen is not None
    assert seen.recent == BatchingSpan(
        seconds=60.0,
        requests=540,
        rows=540,
        executions=180,
        queue_ms=1620.0,
        compute_ms=180.0,
        sizes=(BatchSize(rows=1, executions=60), BatchSize(rows=4, executions=120)),
    )
    assert (seen.total.seconds, seen.total.rows) == (120.0, 1080)


def test_a_model_that_was_loaded_anew_starts_from_nothing() -> None:
    meter = BatchingMeter()
    meter.take(stats({8: 100}), at=0.0)
    meter.take(stats({2: 5}), at=2.0)

    seen = meter.seen()

    assert seen is not None
    assert seen.total.sizes == (BatchSize(rows=2, executions=5),)
    assert seen.recent.rows == 0


@pytest.mark.parametrize("body", ["", "[]", '{"model_stats": []}', '{"model_stats": [{}]}'])
def test_an_answer_that_is_no_statistic_counts_as_none(body: str) -> None:
    meter = BatchingMeter()

    meter.take(body, at=0.0)

    assert meter.seen() is None


def span(
    mean: float, rows_per_s: float, *, queue_ms: float = 1.0, compute_ms: float = 2.0
) -> BatchingSpan:
    """A minute of batches of `mean` rows each, one row a request."""
    rows = round(60 * rows_per_s)
    executions = round(rows / mean) if mean else 0
    return BatchingSpan(
        seconds=60.0,
        requests=rows,
        rows=rows,
        executions=executions,
        queue_ms=queue_ms * rows,
        compute_ms=compute_ms * executions,
    )


QUIET = BatchingSpan(seconds=60.0)

SENTENCES = {
    "too little traffic": (
        span(1.1, 3),
        Batching(),
        "Mean batch 1.1 of 32 at 3 rows/s: too little traffic for batching to help.",
    ),
    "one caller after the other": (
        span(1, 90, queue_ms=0.1, compute_ms=10),
        Batching(),
        "Mean batch 1 of 32 at 90 rows/s: the model computes 90% of the time, one request after"
        " the other; requests that are sent at once would share a batch.",
    ),
    "some share": (
        span(2.5, 50),
        Batching(),
        "Mean batch 2.5 of 32 at 50 rows/s: some requests share a batch; queue 1 ms, compute 2 ms.",
    ),
    "batching carries the load": (
        span(24, 3100, queue_ms=4, compute_ms=6),
        Batching(),
        "Mean batch 24 of 32 at 3,100 rows/s: batching carries the load; queue 4 ms, compute 6 ms.",
    ),
    "full, and at rest": (
        span(2, 20, queue_ms=0.07, compute_ms=22),
        Batching(max_batch_size=2),
        "Mean batch 2 of 2 at 20 rows/s: batches are full, and the model computes 22% of the time;"
        " queue 0.07 ms, compute 22 ms.",
    ),
    "full, and hardly used": (
        span(2, 0.5, queue_ms=0.07, compute_ms=22),
        Batching(max_batch_size=2),
        "Mean batch 2 of 2 at 0.5 rows/s: batches are full, and the model computes hardly any of"
        " the time; queue 0.07 ms, compute 22 ms.",
    ),
    "full, and keeping up": (
        span(31, 3100, queue_ms=4, compute_ms=6),
        Batching(),
        "Mean batch 31 of 32 at 3,100 rows/s: batching carries the load, and batches are full;"
        " queue 4 ms, compute 6 ms.",
    ),
    "saturated": (
        span(32, 2600, queue_ms=80, compute_ms=12),
        Batching(),
        "Batches are full (32 of 32) and the queue (80 ms) is longer than the compute time"
        " (12 ms): the replica is saturated; provision more concurrency, or raise max_batch_size"
        " if the profile still gains there.",
    ),
    "saturated, with the queue in the gateway": (
        span(32, 2600, queue_ms=0.4, compute_ms=12),
        Batching(),
        "Batches are full (32 of 32) and the model computes 98% of the time: the replica is"
        " saturated; provision more concurrency, or raise max_batch_size if the profile still"
        " gains there.",
    ),
    "a delay that nobody shares": (
        span(1, 4, queue_ms=100, compute_ms=5),
        Batching(max_queue_delay_microseconds=100_000),
        "Mean batch 1 of 32 at 4 rows/s, and yet rows wait 100 ms for 5 ms of computing:"
        " max_queue_delay_microseconds (100,000) makes them wait for company that does not come;"
        " lower it.",
    ),
    "shapes that do not mix": (
        span(3, 250, queue_ms=60, compute_ms=11),
        Batching(),
        "Mean batch 3 of 32 at 250 rows/s, and yet rows wait 60 ms for 11 ms of computing: they"
        " do not fit into one batch. Rows of different shapes, or with different params, are"
        " computed apart; more instances or replicas would help.",
    ),
    "bursts": (
        span(5, 10, queue_ms=30, compute_ms=10),
        Batching(),
        "Mean batch 5 of 32 at 10 rows/s, and yet rows wait 30 ms for 10 ms of computing: they"
        " come in bursts, with pauses in between.",
    ),
    "batching off": (
        span(1, 20),
        Batching(max_batch_size=1),
        "max_batch_size is 1, so nothing is batched: 20 rows/s; queue 1 ms, compute 2 ms.",
    ),
    "quiet now": (
        QUIET,
        Batching(),
        "No rows in the last minute. Since the start the mean batch was 12 of 32"
        " (36,000 rows in 3,000 batches).",
    ),
}


@pytest.mark.parametrize(("recent", "batching", "words"), SENTENCES.values(), ids=SENTENCES)
def test_one_sentence_reads_the_figures(
    recent: BatchingSpan, batching: Batching, words: str
) -> None:
    found = realised([BatchingSeen(recent=recent, total=span(12, 600))], batching)

    assert found is not None
    assert found.sentence == words


def test_before_the_first_row_it_says_so() -> None:
    found = realised([BatchingSeen(recent=QUIET, total=QUIET)], Batching())

    assert found is not None
    assert found.sentence == "No row has reached Triton since it started."
    assert realised([], Batching()) is None


def test_replicas_add_up_but_their_minutes_do_not() -> None:
    one = BatchingSeen(recent=span(2, 100), total=span(2, 100))

    found = realised([one, one, one], Batching())

    assert found is not None
    assert (found.rows_per_s, found.mean_rows, found.window_s) == (300, 2, 60)
    assert (found.queue_ms, found.compute_ms) == (1, 2)


def test_it_crosses_a_process_border() -> None:
    meter = BatchingMeter()
    meter.take(stats({2: 5}), at=0.0)
    status = ReplicaStatus(
        replica_id="abcde",
        state=ReplicaState.READY,
        backend=Backend.TRITON,
        message="",
        beat_at=1.0,
        started_at=1.0,
        batching_seen=meter.seen(),
    )

    assert from_json(ReplicaStatus, to_json(status)) == status
