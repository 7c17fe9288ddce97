"""What replicas of tests say that they batched."""

from __future__ import annotations

import time

from portal.endpoints.models import Replica
from serving.replica.status import STATUS_FILE
from serving.spec import (
    Backend,
    BatchingSeen,
    BatchingSpan,
    BatchSize,
    ReplicaState,
    ReplicaStatus,
    to_json,
)


def span_of(sizes: dict[int, int], *, queue_ms: float, compute_ms: float) -> BatchingSpan:
    """A minute with so many executions of so many rows; one row a request."""
    rows = sum(size * count for size, count in sizes.items())
    executions = sum(sizes.values())
    return BatchingSpan(
        seconds=60.0,
        requests=rows,
        rows=rows,
        executions=executions,
        queue_ms=queue_ms * rows,
        compute_ms=compute_ms * executions,
        sizes=tuple(BatchSize(rows=size, executions=n) for size, n in sorted(sizes.items())),
    )


def tell_batching(
    replica: Replica, sizes: dict[int, int], *, queue_ms: float = 4.0, compute_ms: float = 6.0
) -> None:
    """Let the replica say that it made these batches in the last minute."""
    span = span_of(sizes, queue_ms=queue_ms, compute_ms=compute_ms)
    status = ReplicaStatus(
        replica_id=replica.public_id,
        state=ReplicaState.READY,
        backend=Backend.TRITON,
        message="Serving.",
        beat_at=time.time(),
        started_at=time.time(),
        batching_seen=BatchingSeen(recent=span, total=span),
    )
    replica.directory.mkdir(parents=True, exist_ok=True)
    (replica.directory / STATUS_FILE).write_text(to_json(status))
