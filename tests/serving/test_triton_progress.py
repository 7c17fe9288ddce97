"""Which models are taken to hang: those that use no processor, or outlast every caller by far."""

from __future__ import annotations

from typing import Any

from serving.triton.progress import Execution, HangWatch, Work

TIMEOUT_S = 60.0


def work(*executions: Execution, cpu_s: float = 0.0, **changes: Any) -> Work:
    values: dict[str, Any] = {"executions": executions, "waiting": 0.0, "done": 0.0}
    return Work(**values | {"cpu_s": {7: cpu_s}} | changes)


def first_told(watch: HangWatch, looks: list[tuple[float, Work]]) -> float | None:
    """When the watch first says that it hangs."""
    return next((now for now, seen in looks if watch.judge(seen, now) is not None), None)


def test_a_batch_that_outlasts_its_callers_without_the_processor_hangs() -> None:
    batch = Execution(7, 100.0)
    looks = [(100.0 + s, work(batch, cpu_s=3.0)) for s in range(1, 400, 2)]

    assert first_told(HangWatch(TIMEOUT_S), looks) == 165.0


def test_a_batch_that_uses_the_processor_is_only_slow() -> None:
    batch = Execution(7, 100.0)
    looks = [(100.0 + s, work(batch, cpu_s=0.9 * s)) for s in range(1, 290, 2)]

    assert first_told(HangWatch(TIMEOUT_S), looks) is None


def test_even_a_busy_batch_is_given_up_when_it_outlasts_its_callers_by_far() -> None:
    batch = Execution(7, 100.0)
    looks = [(100.0 + s, work(batch, cpu_s=0.9 * s)) for s in range(0, 600, 2)]

    assert first_told(HangWatch(TIMEOUT_S), looks) == 400.0


def test_many_slow_batches_one_after_the_other_are_no_hang() -> None:
    looks = [
        (float(s), work(Execution(7, float(s - s % 50)), waiting=200.0, done=s // 50))
        for s in range(0, 2000, 2)
    ]

    assert first_told(HangWatch(TIMEOUT_S), looks) is None


def test_one_instance_that_hangs_is_found_though_others_work() -> None:
    hangs = Execution(7, 0.0)
    looks = [
        (float(s), work(hangs, Execution(8, float(s)), done=float(s), cpu_s=1.0))
        for s in range(0, 400, 2)
    ]

    assert first_told(HangWatch(TIMEOUT_S), looks) == 66.0


def test_requests_that_nobody_takes_show_a_hang_too() -> None:
    quiet = [(float(s), work(waiting=3.0, done=9.0)) for s in range(0, 400, 2)]
    served = [(float(s), work(waiting=3.0, done=float(s))) for s in range(0, 400, 2)]
    idle = [(float(s), work(done=9.0)) for s in range(0, 400, 2)]

    assert first_told(HangWatch(TIMEOUT_S), quiet) == 66.0
    assert first_told(HangWatch(TIMEOUT_S), served) is None
    assert first_told(HangWatch(TIMEOUT_S), idle) is None
