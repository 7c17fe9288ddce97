"""From measurements to settings: knee, stop rules, what is tried, what is chosen, and why."""

from __future__ import annotations

from typing import Any

import pytest

from serving.spec import DeviceKind, from_json, to_json
from serving.tuning.choice import choose, memory_bound
from serving.tuning.policy import (
    Node,
    Progress,
    Setting,
    Sweep,
    batch_sizes,
    first_setting,
    knee,
    load_for,
    next_setting,
    under_load,
    why_stop,
)
from serving.tuning.profile import SweepStep, Trial

GB = 2**30
DEVICE = {1: 8.1, 2: 8.2, 4: 8.4, 8: 8.8, 16: 9.6, 32: 11.2, 64: 14.4}  # waits for an accelerator
ENCODER = {1: 9.0, 2: 15.0, 4: 26.0, 8: 51.0, 16: 104.0}  # computes on the cores
LOOP = {1: 5.0, 2: 10.0, 4: 20.0, 8: 40.0}  # row by row


def steps(times_ms: dict[int, float]) -> tuple[SweepStep, ...]:
    return tuple(
        SweepStep(rows=rows, runs=5, latency_ms=ms, rows_per_s=rows * 1000 / ms)
        for rows, ms in times_ms.items()
    )


def swept(times_ms: dict[int, float], **fields: Any) -> Sweep:
    return Sweep(
        **{
            "steps": steps(times_ms),
            "stopped_because": "",
            "row_bytes": 512,
            "busy_cores": 1.0,
            "memory_bytes": GB // 2,
            **fields,
        }
    )


def node(**fields: Any) -> Node:
    return Node(
        **{
            "device": DeviceKind.CPU_EMULATION,
            "cores": 2,
            "memory_bytes": 16 * GB,
            "shared_memory_bytes": 8 * GB,
            **fields,
        }
    )


def trial(instances: int, rate: float, *, delay_us: int = 0, failure: str = "") -> Trial:
    return Trial(
        instance_count=instances,
        threads_per_instance=1,
        max_batch_size=8,
        max_queue_delay_microseconds=delay_us,
        callers=64,
        requests_per_s=rate,
        p50_ms=10.0,
        p99_ms=20.0,
        failure=failure,
    )


def progress(sweep: Sweep, *trials: Trial) -> Progress:
    return Progress(started_at=0.0, load_s=3.0, sweep=sweep, trials=trials)


# ---------------------------------------------------------------- the sweep


def test_sizes_double_up_to_what_fits() -> None:
    assert batch_sizes(64) == [1, 2, 4, 8, 16, 32, 64]
    assert batch_sizes(6) == [1, 2, 4, 6]
    assert batch_sizes(1) == [1]


def test_a_sweep_goes_on_while_larger_batches_gain() -> None:
    for count in range(1, len(DEVICE) + 1):
        assert why_stop(steps(DEVICE)[:count]) == ""


def test_a_sweep_ends_where_larger_batches_gain_nothing_but_not_before_8_rows() -> None:
    assert why_stop(steps(LOOP)[:3]) == ""
    assert "no more than 1 row gave (200)" in why_stop(steps(LOOP))
    assert "16 rows in a call" in why_stop(steps(ENCODER))


def test_a_sweep_ends_where_a_call_takes_too_long() -> None:
    assert "A call of 2 rows took 1,400 ms" in why_stop(steps({1: 800.0, 2: 1400.0}))


@pytest.mark.parametrize(("times_ms", "expected"), [(DEVICE, 64), (ENCODER, 4), (LOOP, 1)])
def test_the_knee_is_the_smallest_batch_with_nearly_the_best_throughput(
    times_ms: dict[int, float], expected: int
) -> None:
    assert knee(steps(times_ms)).rows == expected


# ---------------------------------------------------------------- what is tried


def test_the_first_replica_takes_large_batches_as_far_as_shared_memory_goes() -> None:
    assert first_setting(node(), 512) == Setting(max_batch_size=64)
    assert first_setting(node(cores=16), 512).threads_per_instance == 8
    assert first_setting(node(shared_memory_bytes=64 * 2**20), 2**20).max_batch_size == 5


def test_a_model_on_two_cores_gets_a_second_instance_but_no_more() -> None:
    sweep = swept(ENCODER)

    second = next_setting(progress(sweep, trial(1, 100)), node())

    assert second == Setting(instance_count=2, max_batch_size=4)
    assert next_setting(progress(sweep, trial(1, 100), trial(2, 190)), node()) is None
    assert next_setting(progress(sweep, trial(1, 100)), node(cores=1)) is None


def test_a_model_that_leaves_the_cores_free_gets_more_while_each_doubling_is_worth_it() -> None:
    sweep = swept(DEVICE, busy_cores=0.05, is_joined=True)

    found = next_setting(progress(sweep, trial(1, 2600), trial(2, 4000)), node())

    assert found is not None
    assert (found.instance_count, found.threads_per_instance) == (4, 1)
    assert next_setting(progress(sweep, trial(1, 2600), trial(2, 2900)), node()) is None


def test_instances_that_memory_has_no_room_for_are_not_tried() -> None:
    sweep = swept(DEVICE, busy_cores=0.05, memory_bytes=4 * GB)
    first = progress(sweep, trial(1, 2600))

    assert next_setting(first, node(memory_bytes=8 * GB)) is not None
    assert "memory" in choose(first, node(memory_bytes=5 * GB)).reasons["instance_count"]
    assert (
        "memory" in choose(first, node(memory_bytes=8 * GB, replicas=2)).reasons["instance_count"]
    )


def test_a_delay_is_tried_only_where_triton_itself_waits_for_fuller_batches() -> None:
    waits = swept(DEVICE, busy_cores=0.05)
    done = (trial(1, 2600), trial(2, 2700))

    found = next_setting(progress(waits, *done), node())

    assert found == Setting(max_batch_size=64, max_queue_delay_microseconds=2000)
    assert next_setting(progress(swept(DEVICE, busy_cores=1.0), *done), node()) is None
    assert next_setting(progress(swept(LOOP, busy_cores=0.05), *done), node()) is None
    assert (
        next_setting(progress(swept(DEVICE, busy_cores=0.05, is_joined=True), *done), node())
        is None
    )
    assert next_setting(progress(waits, *done, trial(1, 2650, delay_us=2000)), node()) is None


def test_nothing_is_tried_after_a_load_that_failed_or_takes_for_ever() -> None:
    assert next_setting(progress(swept(DEVICE), trial(1, 0, failure="It died.")), node()) is None
    assert load_for(swept({1: 900.0}), 3.0) is None
    assert load_for(swept(ENCODER), 0.5) == pytest.approx(2 * 64 / 156.9, rel=0.01)
    assert load_for(swept(DEVICE), 3.0) == 3.0


def test_where_the_gateway_joins_it_sends_no_more_than_the_knee() -> None:
    assert under_load(Setting(), swept(ENCODER, is_joined=True)).max_batch_size == 4
    assert under_load(Setting(), swept(ENCODER)).max_batch_size == 64


# ---------------------------------------------------------------- the choice


def test_the_choice_says_for_each_setting_why() -> None:
    found = choose(progress(swept(ENCODER), trial(1, 100), trial(2, 190)), node())

    assert (found.batching.max_batch_size, found.batching.instance_count) == (4, 2)
    assert found.batching.max_queue_size == 256
    assert found.batching.preferred_batch_size == ()
    assert [tried.is_chosen for tried in found.trials] == [False, True]
    assert "98% of the best (157 with 8)" in found.reasons["max_batch_size"]
    assert "1.9 times as many as one" in found.reasons["instance_count"]
    assert "computes on the CPU" in found.reasons["max_queue_delay_microseconds"]
    assert set(found.reasons) == {
        "max_batch_size",
        "max_queue_delay_microseconds",
        "preferred_batch_size",
        "instance_count",
        "max_queue_size",
        "threads_per_instance",
    }


def test_a_second_instance_has_to_be_worth_its_memory() -> None:
    found = choose(progress(swept(ENCODER), trial(1, 100), trial(2, 110)), node())

    assert found.batching.instance_count == 1
    assert "two answered 10% more requests" in found.reasons["instance_count"]
    assert [tried.is_chosen for tried in found.trials] == [True, False]


def test_a_delay_has_to_be_worth_it_too() -> None:
    sweep = swept(DEVICE, busy_cores=0.05)
    base = (trial(1, 2600), trial(2, 2700))

    kept = choose(progress(sweep, *base, trial(1, 3000, delay_us=2000)), node())
    dropped = choose(progress(sweep, *base, trial(1, 2650, delay_us=2000)), node())

    assert kept.batching.max_queue_delay_microseconds == 2000
    assert "15% more" in kept.reasons["max_queue_delay_microseconds"]
    assert dropped.batching.max_queue_delay_microseconds == 0


def test_large_rows_are_bounded_by_shared_memory_and_that_is_said() -> None:
    sweep = swept(DEVICE, row_bytes=2**20)
    small = node(shared_memory_bytes=200 * 2**20)

    found = choose(progress(sweep, trial(1, 100)), small)

    assert found.batching.max_batch_size == memory_bound(sweep, small, 1) == 16
    assert "Shared memory has room for 16 rows" in found.reasons["max_batch_size"]
    assert memory_bound(swept(DEVICE), node(), 1) is None


def test_progress_survives_its_json() -> None:
    before = progress(swept(ENCODER), trial(1, 100))

    assert from_json(Progress, to_json(before)) == before
