"""Which batching a deployment puts in force: overrides, then a profile, then defaults.

Pure, but for the one function that reads the node's facts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from portal.endpoints.models import ServedEntity
from serving.spec import Backend, Batching
from serving.tuning.policy import queue_size, rows_that_fit, threads_for
from serving.tuning.profile import Profile
from serving.tuning.usage import free_shared_memory_bytes
from serving.workloads import WORKLOAD_TYPES

DEFAULT_MAX_BATCH_SIZE = 32
OVERRIDDEN = "Set on the served entity."
FOLLOWS = "Follows from the other settings."


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What bounds the batching on the node."""

    cores: int
    shared_memory_bytes: int


def node_facts() -> NodeFacts:
    """This node's cores and free shared memory."""
    return NodeFacts(
        cores=len(os.sched_getaffinity(0)), shared_memory_bytes=free_shared_memory_bytes()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A batching, and a sentence for each of its fields."""

    batching: Batching
    reasons: dict[str, str]


def plan_batching(
    example: Mapping[str, Any] | None,
    overrides: Mapping[str, Any],
    facts: NodeFacts,
    profile: Profile | None = None,
    *,
    why_default: str = "",
) -> Plan:
    """The batching for a model with this input example (a serving request body).

    Overrides always win; what they leave open follows from the profile, else from defaults.

    Args:
        example: None: the model has none.
        overrides: By the field's name, as the user set them.
        facts: What bounds defaults.
        profile: The model's measurements on the device.
        why_default: Why there is no profile, as a sentence.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    found: dict[str, tuple[Any, str, str]] = {}  # value, source, reason

    def settle(key: str, default: Any, *, follows: bool) -> Any:
        """Override, profile or default; what follows from an override is not the profile's."""
        if key in given:
            found[key] = (given[key], "override", OVERRIDDEN)
        elif profile is not None and not follows:
            reason = profile.reasons.get(key, "")
            found[key] = (getattr(profile.chosen, key), "profile", reason)
        else:
            found[key] = (default, "default", FOLLOWS if follows else why_default)
        return found[key][0]

    size = settle("max_batch_size", _default_batch_size(example, facts), follows=False)
    settle("max_queue_delay_microseconds", 0, follows=False)
    settle("preferred_batch_size", (), follows=False)
    instances = settle("instance_count", 1, follows=False)
    settle("max_queue_size", queue_size(size), follows="max_batch_size" in given)
    threads = threads_for(facts.cores, instances)
    settle("threads_per_instance", threads, follows="instance_count" in given)
    values = {key: value for key, (value, _, _) in found.items()}
    values["preferred_batch_size"] = tuple(
        preferred for preferred in values["preferred_batch_size"] if preferred <= size
    )
    sources = {key: source for key, (_, source, _) in found.items()}
    return Plan(
        batching=Batching(**values, sources=sources),
        reasons={key: reason for key, (_, _, reason) in found.items()},
    )


def batching_to_json(batching: Batching) -> dict[str, Any]:
    """How a batching is kept in a row; `routes.batching_of` reads it."""
    return {**asdict(batching), "sources": dict(batching.sources)}


def _default_batch_size(example: Mapping[str, Any] | None, facts: NodeFacts) -> int:
    row = row_bytes(example)
    if not row:
        return DEFAULT_MAX_BATCH_SIZE
    return min(DEFAULT_MAX_BATCH_SIZE, rows_that_fit(facts.shared_memory_bytes, row))


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
