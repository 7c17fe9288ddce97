"""The batching that a deployment puts in force: from the example, the node and the overrides."""

from __future__ import annotations

from typing import Any

import pytest

from portal.endpoints.batching import NodeFacts, max_in_flight, plan_batching, row_bytes
from portal.endpoints.models import ServedEntity
from serving.spec import Backend, Batching

ROOMY = NodeFacts(cores=4, shared_memory_bytes=8 * 2**30)


def test_defaults_are_32_rows_one_instance_on_half_the_cores_without_delay() -> None:
    found = plan_batching({"inputs": [[1.0] * 4] * 2}, {}, ROOMY).batching

    assert found.max_batch_size == 32
    assert (found.instance_count, found.threads_per_instance) == (1, 2)
    assert found.max_queue_delay_microseconds == 0
    assert found.max_queue_size == 256
    assert set(found.sources.values()) == {"default"}


def test_large_rows_bound_the_batch_by_shared_memory() -> None:
    image = {"inputs": [[[[0.0] * 224] * 224] * 3]}

    found = plan_batching(image, {}, NodeFacts(cores=2, shared_memory_bytes=64 * 2**20)).batching

    assert 1 <= found.max_batch_size < 8
    assert plan_batching(image, {}, ROOMY).batching.max_batch_size == 32
    cramped = NodeFacts(cores=2, shared_memory_bytes=0)
    assert plan_batching(image, {}, cramped).batching.max_batch_size == 1


def test_overrides_win_and_what_they_leave_open_follows_from_them() -> None:
    overrides = {"max_batch_size": 64, "instance_count": 2, "preferred_batch_size": [16, 64, 128]}

    found = plan_batching(None, overrides, ROOMY).batching

    assert (found.max_batch_size, found.instance_count) == (64, 2)
    assert found.preferred_batch_size == (16, 64)
    assert found.threads_per_instance == 1
    assert found.max_queue_size == 512
    assert found.sources["max_batch_size"] == "override"
    assert found.sources["max_queue_size"] == "default"


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        (None, 0),
        ({}, 0),
        ({"inputs": []}, 0),
        ({"inputs": [[1, 2], [3, 4]]}, 16),
        ({"inputs": {"a": [[1, 2]], "b": ["four"]}}, 20),
        ({"instances": [[1]]}, 8),
        ({"dataframe_records": [{"a": 1, "b": "xyz"}]}, 11),
        ({"dataframe_split": {"columns": ["a"], "data": [[1.5]]}}, 8),
    ],
)
def test_a_rows_bytes_are_told_from_each_kind_of_example(example: Any, expected: int) -> None:
    assert row_bytes(example) == expected


def test_a_standard_replica_takes_its_units_and_triton_what_its_queue_holds() -> None:
    entity = ServedEntity(workload_type="GPU_SMALL")
    batching = Batching(max_queue_size=300)

    assert max_in_flight(entity, Backend.STANDARD, batching) == 4
    assert max_in_flight(entity, Backend.TRITON, batching) == 300
