"""When a server is started again, and when it is given up."""

from __future__ import annotations

import pytest

from serving.replica.life import StallWatch
from serving.replica.restarts import (
    DELAYS_S,
    FORGIVEN_AFTER_S,
    MOST_FAILED_STARTS,
    Failure,
    RestartPolicy,
    describe_exit,
)

ACCIDENT = Failure(message="it ended", exit_code=137)


def test_a_server_that_never_became_ready_is_given_up_after_some_starts() -> None:
    policy = RestartPolicy()

    delays = [policy.delay_after(ACCIDENT, ready_for_s=None) for _ in range(MOST_FAILED_STARTS)]

    assert delays == [*DELAYS_S[: MOST_FAILED_STARTS - 1], None]


def test_a_final_failure_is_not_tried_again() -> None:
    final = Failure(message="no such module", is_final=True)

    assert RestartPolicy().delay_after(final, ready_for_s=None) is None


def test_a_server_that_was_ready_is_started_again_for_ever_ever_more_slowly() -> None:
    policy = RestartPolicy()
    first = policy.delay_after(ACCIDENT, ready_for_s=1.0)
    final = Failure(message="no such module", is_final=True)

    delays = [policy.delay_after(final, ready_for_s=None) for _ in range(20)]

    assert first == DELAYS_S[0]
    assert delays[:5] == list(DELAYS_S[1:])
    assert set(delays[5:]) == {DELAYS_S[-1]}


def test_serving_for_a_while_clears_the_record() -> None:
    policy = RestartPolicy()
    for _ in range(5):
        policy.delay_after(ACCIDENT, ready_for_s=1.0)

    assert policy.delay_after(ACCIDENT, ready_for_s=FORGIVEN_AFTER_S) == DELAYS_S[0]


@pytest.mark.parametrize(
    ("code", "words"),
    [(137, "killed (exit code 137)"), (139, "SIGSEGV"), (3, "exit code 3"), (250, "signal 122")],
)
def test_exit_codes_are_explained(code: int, words: str) -> None:
    assert words in describe_exit(code)


def test_a_load_that_uses_no_processor_is_told_from_a_slow_one() -> None:
    hanging, slow = StallWatch(), StallWatch()

    for second in range(61):  # a few threads wake up now and then
        hanging_s = hanging.idle_s(3.0 + second * 0.005, now=second)
        slow_s = slow.idle_s(3.0 + second * 0.2, now=second)

    assert hanging_s == 60
    assert slow_s <= 1


def test_a_load_that_goes_on_is_no_longer_taken_to_hang() -> None:
    watch = StallWatch()
    watch.idle_s(1.0, now=0)
    assert watch.idle_s(1.0, now=50) == 50

    assert watch.idle_s(4.0, now=51) == 0
    assert watch.idle_s(4.0, now=60) == 9
