"""What Triton's own statistics say about the batches that it made.

Source: `GET /v2/models/<model>/stats`, described at
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.spec import BatchingSeen, BatchingSpan, BatchSize

RECENT_S = 60.0
NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Triton's running sums since its start; `at` is on a monotonic clock."""

    at: float
    requests: int = 0
    rows: int = 0
    executions: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    sizes: Mapping[int, int]


class BatchingMeter:
    """Turns running sums, read now and then, into what was batched lately and in all."""

    def __init__(self) -> None:
        self._read: deque[Counters] = deque()
        self._first: Counters | None = None

    def take(self, body: str, *, at: float) -> None:
        """Take in an answer of Triton's; one that cannot be read counts as none."""
        found = read_counters(body, at=at)
        if found is None:
            return
        if self._read and found.executions < self._read[-1].executions:
            self._read.clear()  # the model was loaded anew: the sums start again
            self._first = None
        self._first = self._first or found
        self._read.append(found)
        while len(self._read) > 2 and self._read[1].at <= at - RECENT_S:
            self._read.popleft()

    def seen(self) -> BatchingSeen | None:
        """What was batched; None before the first answer."""
        if self._first is None:
            return None
        newest = self._read[-1]
        start = Counters(at=self._first.at, sizes={})
        return BatchingSeen(recent=_between(self._read[0], newest), total=_between(start, newest))


def read_counters(body: str, *, at: float) -> Counters | None:
    """Read an answer to `/stats`; None when it is something else."""
    try:
        model = json.loads(body)["model_stats"][0]
        of_requests = model["inference_stats"]
        batches = model.get("batch_stats", [])
        return Counters(
            at=at,
            requests=int(of_requests["success"]["count"]),
            rows=int(model["inference_count"]),
            executions=int(model["execution_count"]),
            queue_ns=int(of_requests["queue"]["ns"]),
            compute_ns=sum(_compute_ns(batch) for batch in batches),
            sizes={
                int(batch["batch_size"]): int(batch["compute_infer"]["count"]) for batch in batches
            },
        )
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def _compute_ns(batch: Mapping[str, Any]) -> int:
    """The whole time in the backend, as its callers feel it: input, model, output."""
    parts = ("compute_input", "compute_infer", "compute_output")
    return sum(int(batch[part]["ns"]) for part in parts)


def _between(old: Counters, new: Counters) -> BatchingSpan:
    sizes = {rows: count - old.sizes.get(rows, 0) for rows, count in new.sizes.items()}
    return BatchingSpan(
        seconds=round(new.at - old.at, 1),
        requests=new.requests - old.requests,
        rows=new.rows - old.rows,
        executions=new.executions - old.executions,
        queue_ms=round((new.queue_ns - old.queue_ns) / NS_PER_MS, 3),
        compute_ms=round((new.compute_ns - old.compute_ns) / NS_PER_MS, 3),
        sizes=tuple(
            BatchSize(rows=rows, executions=count) for rows, count in sorted(sizes.items()) if count
        ),
    )
