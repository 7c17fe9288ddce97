"""What the gateways count of an endpoint's requests, as it stands in Redis."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from serving import bus
from serving.metering import BUCKETS_MS, Histogram, Tally, read_recent, read_totals, slots_of
from serving.spec import LimitKey, RateLimit
from tests.support.gateway import (
    GatewayServer,
    Once,
    Publisher,
    StandInReplica,
    drop,
    entity,
    slow,
    triton_error,
    wait_until_answered,
)
from tests.support.replicas import wait_for
from tests.support.valkey import Valkey

BODY = {"inputs": [[1, 2, 3], [4, 5, 6]]}
ENDPOINT_ID = "id-of-shoal"


def totals(client: redis.Redis) -> dict[str, Tally]:
    """All that was ever counted."""
    found: Any = client.hgetall(bus.meter_key(ENDPOINT_ID))
    return read_totals(found)


def statuses(client: redis.Redis, entity_name: str = "model-1") -> dict[int, int]:
    """How often each status was answered."""
    return totals(client).get(entity_name, Tally()).statuses


def recent(client: redis.Redis) -> dict[str, dict[int, int]]:
    """What was counted in the last minute."""
    now = time.time()
    slots: list[Any] = [client.hgetall(bus.meter_slot_key(ENDPOINT_ID, s)) for s in slots_of(now)]
    return read_recent(slots, now)


def test_requests_of_all_gateways_add_up_by_status_time_and_rows(
    start_gateway: Callable[..., GatewayServer],
    publisher: Publisher,
    replica: StandInReplica,
    valkey: redis.Redis,
) -> None:
    gateways = [start_gateway(), start_gateway()]
    publisher.route(entity(replica.address))
    for gateway in gateways:
        wait_until_answered(gateway, body=BODY)
        assert gateway.ask({"inputs": "no"}).status_code == 400
    replica.behave = slow(0.06)
    assert gateways[0].ask(BODY).status_code == 200

    wait_for(lambda: statuses(valkey) == {200: 3, 400: 2}, timeout_s=20)

    tally = totals(valkey)["model-1"]
    assert (tally.requests(), tally.requests(4), tally.requests(5)) == (5, 2, 0)
    assert tally.rows == 6
    assert tally.total.count == 5
    assert sum(tally.total.counts[BUCKETS_MS.index(75) :]) >= 1  # the slow one
    assert tally.total.sum_ms > 60
    assert recent(valkey) == {"model-1": {200: 3, 400: 2}}


def test_what_was_refused_before_an_entity_was_chosen_is_the_endpoints(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica, valkey: redis.Redis
) -> None:
    publisher.route(entity(replica.address), rate_limits=(RateLimit(key=LimitKey.USER, calls=1),))
    wait_until_answered(gateway, body=BODY)
    assert gateway.ask(BODY).status_code == 429
    assert gateway.ask(BODY, token="unknown").status_code == 401

    wait_for(lambda: statuses(valkey, "") == {429: 1}, timeout_s=20)

    assert totals(valkey)[""].total.count == 0  # no time was spent on it
    assert statuses(valkey) == {200: 1}


def test_a_request_that_ran_out_of_time_is_a_504(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica, valkey: redis.Redis
) -> None:
    publisher.route(entity(replica.address), request_timeout_s=1.0)
    wait_until_answered(gateway, body=BODY)
    replica.behave = slow(5.0)
    assert gateway.ask(BODY).status_code == 504
    replica.behave = triton_error(400, "ValueError: no")
    assert gateway.ask(BODY).status_code == 400

    wait_for(lambda: statuses(valkey) == {200: 1, 504: 1, 400: 1}, timeout_s=20)


def test_requests_that_were_tried_again_are_counted_once_each(
    gateway: GatewayServer,
    publisher: Publisher,
    replica: StandInReplica,
    valkey: redis.Redis,
) -> None:
    publisher.route(entity(replica.address))
    wait_until_answered(gateway, body=BODY)
    replica.behave = Once(lambda handler, rows: drop(handler), times=2)
    assert gateway.ask(BODY).status_code == 200  # at the third try
    assert gateway.ask(BODY).status_code == 200

    wait_for(lambda: statuses(valkey) == {200: 3}, timeout_s=20)

    assert totals(valkey)["model-1"].retried == 1


def test_nothing_is_lost_or_counted_twice_while_redis_is_away(
    start_gateway: Callable[..., GatewayServer],
    replica: StandInReplica,
    tmp_path: Path,
) -> None:
    server = Valkey(tmp_path / "valkey.sock")
    server.start()
    try:
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            publisher = Publisher(client)
            publisher.begin()
            publisher.route(entity(replica.address))
            gateway = start_gateway(redis_url=server.url)
            wait_until_answered(gateway, body=BODY)
            server.kill()
            for _ in range(5):
                assert gateway.ask(BODY).status_code == 200
            time.sleep(2.5)  # more than one addition fails
            server.start()  # with nothing in it
            assert gateway.ask(BODY).status_code == 200

            wait_for(lambda: statuses(client).get(200, 0) >= 6, timeout_s=20)
            time.sleep(1.5)
            # The first one was told before the kill, or is still to be told.
            assert statuses(client)[200] in {6, 7}
    finally:
        server.kill()


def test_an_addition_that_was_made_is_not_made_again(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica, valkey: redis.Redis
) -> None:
    publisher.route(entity(replica.address))
    wait_until_answered(gateway, body=BODY)
    wait_for(lambda: statuses(valkey) == {200: 1}, timeout_s=20)
    (number,) = valkey.keys("shoal:meter-number:*")
    valkey.set(number, 1000)  # as if the next ones had arrived already

    assert gateway.ask(BODY).status_code == 200
    time.sleep(2.0)

    assert statuses(valkey) == {200: 1}


@pytest.mark.parametrize("ms", [0.0, 0.5, 0.6, 42.0, 600_000.0, 1e9])
def test_a_time_lies_below_its_bucket_and_all_above(ms: float) -> None:
    histogram = Histogram()
    histogram.add(ms)

    for bound, count in histogram.cumulative():
        assert count == (ms <= float(bound.replace("+Inf", "inf")))
