"""Rate limits: who is counted together, what the refused see, several gateways, Redis away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.gateway.limiting import SCRIPT, Counted, LocalCounts, limits_of
from serving.spec import LimitKey, Principal, RateLimit
from tests.support.gateway import (
    GatewayServer,
    Publisher,
    StandInReplica,
    entity,
    run_together,
    wait_until_answered,
)
from tests.support.valkey import Valkey

BODY = {"inputs": [[1, 2, 3]]}
CAST = {"ana": ("users", "vision"), "ben": ("users", "vision"), "eve": ("users",)}


def limit(calls: int, key: str = "endpoint", principal: str = "") -> RateLimit:
    return RateLimit(key=LimitKey(key), calls=calls, principal=principal)


@pytest.fixture(autouse=True)
def away_from_the_minutes_end() -> None:
    """A window that slides on in the middle of a test would let one more call pass."""
    left = 60 - time.time() % 60
    if left < 8:
        time.sleep(left)


@pytest.fixture
def publish(publisher: Publisher, replica: StandInReplica) -> Callable[..., None]:
    """Publishes the endpoint with these limits; ana, ben and eve may query it."""
    for name, groups in CAST.items():
        publisher.principal(name, user_id=f"id-{name}", groups=groups)

    def publish(*limits: RateLimit, **changes: Any) -> None:
        levels = {f"id-{name}": "CAN_QUERY" for name in CAST}
        publisher.route(entity(replica.address), rate_limits=limits, user_levels=levels, **changes)

    return publish


def asked(gateway: GatewayServer, *tokens: str) -> list[int]:
    return [gateway.ask(BODY, token=token).status_code for token in tokens]


# ---------------------------------------------------------------- what the refused see


def test_beyond_the_limit_calls_are_refused_with_the_limit_and_when_to_come_again(
    gateway: GatewayServer, publish: Callable[..., None], replica: StandInReplica
) -> None:
    publish(limit(2))
    wait_until_answered(gateway, token="ana")

    statuses = asked(gateway, "ana", "ben", "ben")
    refused = gateway.ask(BODY, token="ana")

    assert statuses == [200, 429, 429]
    assert replica.calls == 2
    assert refused.json()["error_code"] == "REQUEST_LIMIT_EXCEEDED"
    assert "at most 2 calls a minute from all callers together" in refused.json()["message"]
    assert 1 <= int(refused.headers["retry-after"]) <= 120
    assert set(refused.json()) == {"error_code", "message", "details", "request_id"}


def test_a_limit_of_no_calls_refuses_all(
    gateway: GatewayServer, publish: Callable[..., None]
) -> None:
    publish(limit(0))

    assert wait_until_answered(gateway, token="ana", status=429).headers["retry-after"] == "60"


def test_without_limits_redis_is_not_asked(
    gateway: GatewayServer, publish: Callable[..., None], valkey: redis.Redis
) -> None:
    publish()
    wait_until_answered(gateway, token="ana")

    assert not valkey.keys("shoal:limit:*")


def test_a_limit_that_is_taken_away_holds_nobody_any_more(
    gateway: GatewayServer, publish: Callable[..., None]
) -> None:
    publish(limit(1))
    wait_until_answered(gateway, token="ana")
    assert asked(gateway, "ana") == [429]

    publish()

    wait_until_answered(gateway, token="ana")
    assert asked(gateway, "ana", "ana") == [200, 200]


def test_refused_callers_without_permission_are_not_counted(
    gateway: GatewayServer, publish: Callable[..., None], publisher: Publisher
) -> None:
    publisher.principal("stranger")
    publish(limit(2))
    wait_until_answered(gateway, token="ana")

    assert asked(gateway, "stranger", "stranger", "ana") == [404, 404, 200]


# ---------------------------------------------------------------- who is counted together


def test_each_user_has_his_own_calls(gateway: GatewayServer, publish: Callable[..., None]) -> None:
    publish(limit(2, "user"))
    wait_until_answered(gateway, token="ana")

    statuses = asked(gateway, "ana", "ana", "ben", "ben", "ben")

    assert statuses == [200, 429, 200, 200, 429]
    assert "calls a minute from each user" in gateway.ask(BODY, token="ana").json()["message"]


def test_the_endpoints_limit_holds_beside_each_users(
    gateway: GatewayServer, publish: Callable[..., None]
) -> None:
    publish(limit(3), limit(2, "user"))
    wait_until_answered(gateway, token="ana")

    assert asked(gateway, "ana", "ana", "ben", "ben") == [200, 429, 200, 429]


def test_a_refused_call_takes_nothing_from_the_other_limits(
    gateway: GatewayServer, publish: Callable[..., None]
) -> None:
    publish(limit(3), limit(1, "user"))
    wait_until_answered(gateway, token="ana")

    assert asked(gateway, "ana", "ana", "ana", "ben", "eve") == [429, 429, 429, 200, 200]


def test_the_members_of_a_group_share_its_calls(
    gateway: GatewayServer, publish: Callable[..., None]
) -> None:
    publish(limit(3, "user_group", "vision"))
    wait_until_answered(gateway, token="ana")

    assert asked(gateway, "ben", "ana", "ben", "eve") == [200, 200, 429, 200]


@pytest.mark.parametrize("key", ["user", "service_principal"])
def test_a_limit_that_names_the_caller_stands_in_for_the_wider_ones(
    gateway: GatewayServer, publish: Callable[..., None], key: str
) -> None:
    publish(limit(1, "user"), limit(1, "user_group", "vision"), limit(3, key, "ana"))
    wait_until_answered(gateway, token="ana")

    assert asked(gateway, "ana", "ana", "ana", "ben", "ben") == [200, 200, 429, 200, 429]


def test_of_two_limits_that_count_the_same_calls_the_smaller_one_holds() -> None:
    caller = Principal(user_id="7", user_name="ana", is_admin=False, groups=(), expires_at=None)

    applying = limits_of("id", [limit(600), limit(5), limit(50)], caller)

    assert [counted.limit.calls for counted in applying] == [5]


# ---------------------------------------------------------------- several processes, Redis away


def test_gateways_count_together(
    start_gateway: Callable[..., GatewayServer], publish: Callable[..., None]
) -> None:
    first, second = start_gateway(processes=2), start_gateway(processes=2)
    publish(limit(4))
    wait_until_answered(first, token="ana")
    wait_until_answered(second, token="ana")

    assert asked(first, "ana") + asked(second, "ana", "ana") + asked(first, "ana") == [
        *(200, 200),
        *(429, 429),
    ]


def test_of_many_calls_at_once_no_more_pass_than_may(
    start_gateway: Callable[..., GatewayServer], publish: Callable[..., None]
) -> None:
    gateway = start_gateway(max_waiting=1000)
    publish(limit(21), limit(1000, "user"))
    wait_until_answered(gateway, token="ana")

    answers = run_together([partial(gateway.ask, BODY, token="ana")] * 60)

    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(200), statuses.count(429)) == (20, 40)


@pytest.fixture
def own_valkey(tmp_path: Any) -> Iterator[Valkey]:
    server = Valkey(tmp_path / "valkey.sock")
    server.start()
    yield server
    server.kill()


def test_while_redis_is_away_each_gateway_grants_its_share(
    start_gateway: Callable[..., GatewayServer], own_valkey: Valkey, replica: StandInReplica
) -> None:
    client = redis.Redis.from_url(own_valkey.url, decode_responses=True)
    publisher = Publisher(client)
    publisher.begin()
    gateway = start_gateway(redis_url=own_valkey.url, processes=2)
    publisher.route(entity(replica.address), rate_limits=(limit(9),))
    wait_until_answered(gateway)
    client.close()
    own_valkey.kill()

    statuses = [gateway.ask(BODY, timeout_s=10).status_code for _ in range(8)]

    assert statuses == [200] * 5 + [429] * 3


# ---------------------------------------------------------------- the window


@pytest.mark.parametrize("share_passed", [0.0, 0.25, 0.5, 0.75])
def test_the_window_slides(share_passed: float) -> None:
    counts, counted = LocalCounts(1), [Counted("k", limit(20))]
    start = 6000.0
    for _ in range(20):
        assert counts.take(counted, start + 30) is None

    passed = 0
    while counts.take(counted, start + 60 + 60 * share_passed) is None:
        passed += 1

    assert passed == 20 * share_passed


@settings(max_examples=60, deadline=None)
@given(
    calls=st.integers(1, 40),
    moments=st.lists(st.floats(0, 300), min_size=1, max_size=80).map(sorted),
)
def test_whoever_waits_as_told_passes(calls: int, moments: list[float]) -> None:
    counts, counted = LocalCounts(1), [Counted("k", limit(calls))]
    refusal = None
    for moment in moments:
        refusal = counts.take(counted, 6000 + moment)

    if refusal is not None:
        assert 0 < refusal.wait_s <= 120
        later = 6000 + moments[-1] + refusal.wait_s + 0.001
        assert counts.take(counted, later) is None


@pytest.mark.parametrize("calls", [0, 1, 3, 50])
def test_redis_counts_as_a_process_does(valkey: redis.Redis, calls: int) -> None:
    counts, counted = LocalCounts(1), [Counted("k", limit(calls))]
    seconds, micros = valkey.time()
    now = seconds + micros / 1e6
    minute = int(now // 60)
    valkey.hset("k", mapping={"minute": minute - 1, "current": 40, "previous": 7})
    for second in range(40):
        counts.take([Counted("k", limit(40))], (minute - 1) * 60 + second / 2)

    for _ in range(60):
        which, wait_ms = valkey.eval(SCRIPT, 1, "k", str(calls))
        refusal = counts.take(counted, now)

        assert bool(which) == (refusal is not None)
        if refusal is not None:
            assert abs(wait_ms / 1000 - refusal.wait_s) < 2
