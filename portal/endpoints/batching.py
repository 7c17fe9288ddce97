"""Which batching a deployment puts in force: defaults from the input example, then overrides.

Pure, but for the one function that reads the node's facts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portal.endpoints.models import ServedEntity
from serving.spec import Backend, Batching
from serving.workloads import WORKLOAD_TYPES

DEFAULT_MAX_BATCH_SIZE = 32
# Shared memory per instance is about 1.2 x rows x (input + output bytes a row), and twice that
# while a model is loaded anew; a fifth of what is free leaves room for other replicas.
SHARE_OF_SHARED_MEMORY = 5
BYTES_A_ROW_FACTOR = 2.4
FULL_BATCHES_QUEUED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What bounds the batching on the node."""

    cores: int
    shared_memory_bytes: int


def node_facts() -> NodeFacts:
    """This node's cores and free shared memory."""
    try:
        shm = os.statvfs("/dev/shm")  # noqa: S108 - the kernel's shared memory, not a file of ours
        free = shm.f_bavail * shm.f_frsize
    except OSError:
        free = 64 * 2**20
    return NodeFacts(cores=len(os.sched_getaffinity(0)), shared_memory_bytes=free)


def plan_batching(
    example: Mapping[str, Any] | None, overrides: Mapping[str, Any], facts: NodeFacts
) -> Batching:
    """The batching for a model with this input example (a serving request body).

    Overrides always win; what they leave open follows from them and from the node.
    """
    values: dict[str, Any] = {
        "max_batch_size": _default_batch_size(example, facts),
        "max_queue_delay_microseconds": 0,
        "preferred_batch_size": (),
        "instance_count": 1,
    }
    values |= {key: value for key, value in overrides.items() if value is not None}
    values["preferred_batch_size"] = tuple(
        size for size in values["preferred_batch_size"] if size <= values["max_batch_size"]
    )
    values.setdefault("max_queue_size", max(256, FULL_BATCHES_QUEUED * values["max_batch_size"]))
    # Half of the cores stay with the gateway and Triton: threads of one model wait for each other
    # at barriers, and one that lacks a core holds up all.
    share = facts.cores // (2 * values["instance_count"])
    values.setdefault("threads_per_instance", max(1, share))
    sources = {key: "override" if key in overrides else "default" for key in values}
    return Batching(**values, sources=sources)


def _default_batch_size(example: Mapping[str, Any] | None, facts: NodeFacts) -> int:
    row = row_bytes(example)
    if not row:
        return DEFAULT_MAX_BATCH_SIZE
    room = facts.shared_memory_bytes / SHARE_OF_SHARED_MEMORY
    fits = int(room / (row * BYTES_A_ROW_FACTOR))
    return max(1, min(DEFAULT_MAX_BATCH_SIZE, fits))


def row_bytes(example: Mapping[str, Any] | None) -> int:
    """About how many bytes a row of the example takes as tensors; 0 when it cannot be told."""
    body = example or {}
    for key in ("inputs", "instances", "dataframe_records"):
        rows = body.get(key)
        if isinstance(rows, Mapping):  # named tensors, each with all rows
            return sum(_first_row_bytes(tensor) for tensor in rows.values())
        if rows is not None:
            return _first_row_bytes(rows)
    split = body.get("dataframe_split")
    return _first_row_bytes(split.get("data")) if isinstance(split, Mapping) else 0


def _first_row_bytes(rows: Any) -> int:
    return _size(rows[0]) if isinstance(rows, list) and rows else 0


def _size(value: Any) -> int:
    if isinstance(value, list):
        # Tensors are regular: the first item stands for all.
        return len(value) * _size(value[0]) if value else 0
    if isinstance(value, Mapping):
        return sum(_size(item) for item in value.values())
    return len(value) if isinstance(value, str) else 8


def max_in_flight(entity: ServedEntity, backend: Backend, batching: Batching) -> int:
    """Requests that one replica is given at once.

    A standard replica takes its units of concurrency; a throughput-optimized one as many as its
    queue holds, since batching is what lets one replica serve many callers.
    """
    if backend == Backend.TRITON:
        return batching.max_queue_size
    return WORKLOAD_TYPES[entity.workload_type].units_per_replica
