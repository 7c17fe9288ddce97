"""What more requests than the replicas can take cost the caller, and how load is shared."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.support.gateway import (
    TOKEN,
    GatewayServer,
    Once,
    Publisher,
    StandInReplica,
    entity,
    free_port,
    slow,
    triton_error,
    wait_until_answered,
)

BODY = {"inputs": [[1, 2, 3]]}
ANSWER = {"predictions": [[2.0, 4.0, 6.0]]}


def test_beyond_what_may_be_in_flight_requests_wait_and_beyond_that_are_turned_away(
    start_gateway: Callable[..., GatewayServer], publisher: Publisher, replica: StandInReplica
) -> None:
    gateway = start_gateway(max_waiting=3)
    publisher.route(entity(replica.address, max_in_flight=2))
    wait_until_answered(gateway)
    replica.behave = slow(0.5)

    responses = gateway.ask_all([BODY] * 8)

    statuses = sorted(response.status_code for response in responses)
    assert statuses == [200] * 5 + [429] * 3
    assert replica.most_in_flight <= 2
    turned_away = next(r for r in responses if r.status_code == 429)
    assert turned_away.json()["error_code"] == "REQUEST_LIMIT_EXCEEDED"
    assert turned_away.json()["message"].startswith("Too many concurrent requests.")
    assert turned_away.headers["retry-after"].isdigit()


def test_a_full_queue_of_triton_is_waited_for(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    replica.behave = Once(triton_error(503, "Exceeds maximum queue size"), 3)
    publisher.route(entity(replica.address))

    assert wait_until_answered(gateway).json() == ANSWER


def test_a_queue_of_triton_that_stays_full_is_a_429(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    replica.behave = triton_error(503, "Exceeds maximum queue size")
    publisher.route(entity(replica.address))

    response = wait_until_answered(gateway, 429)

    assert response.json()["error_code"] == "REQUEST_LIMIT_EXCEEDED"


def test_a_model_that_is_too_slow_is_a_504(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    replica.behave = slow(3)
    publisher.route(entity(replica.address), request_timeout_s=0.4)

    response = wait_until_answered(gateway, 504)

    assert response.json()["error_code"] == "DEADLINE_EXCEEDED"
    assert response.json()["message"].startswith("Timed out while evaluating the model.")


def test_a_request_in_the_queue_has_a_deadline_too(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    replica.behave = slow(2)
    publisher.route(entity(replica.address, max_in_flight=1), request_timeout_s=0.6)
    wait_until_answered(gateway, 504)

    responses = gateway.ask_all([BODY] * 4)

    assert {response.status_code for response in responses} == {504}
    replica.behave = lambda handler, rows: False
    assert wait_until_answered(gateway).json() == ANSWER


def test_a_caller_who_hangs_up_frees_the_place(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    release = threading.Event()
    replica.behave = Once(lambda handler, rows: not release.wait(10))
    publisher.route(entity(replica.address, max_in_flight=1))
    wait_until_answered(gateway, 404, endpoint="other")
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5)
    connection.request(
        "POST",
        "/serving-endpoints/shoal/invocations",
        json.dumps(BODY),
        {"Authorization": f"Bearer {TOKEN}"},
    )
    while not replica.calls:
        time.sleep(0.01)

    connection.close()

    assert wait_until_answered(gateway, timeout_s=8).json() == ANSWER
    release.set()


def test_a_queued_request_whose_caller_hung_up_is_not_sent_to_the_replica(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    publisher.route(entity(replica.address, max_in_flight=1))
    wait_until_answered(gateway)
    release = threading.Event()
    replica.behave = Once(lambda handler, rows: not release.wait(10))
    replica.calls = 0
    first = threading.Thread(target=lambda: gateway.ask(BODY))
    first.start()
    while not replica.calls:
        time.sleep(0.01)
    queued = [http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5) for _ in range(5)]
    for connection in queued:
        connection.request(
            "POST",
            "/serving-endpoints/shoal/invocations",
            json.dumps(BODY),
            {"Authorization": f"Bearer {TOKEN}"},
        )
    time.sleep(0.5)  # the gateway looks after a caller once he has waited for a moment

    for connection in queued:
        connection.close()
    time.sleep(0.2)
    release.set()
    first.join()

    assert gateway.ask(BODY).json() == ANSWER
    assert replica.calls == 2


def test_traffic_is_split_by_weight(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    other = StandInReplica()
    publisher.route(
        entity(replica.address, name="a", traffic_percentage=80),
        entity(other.address, name="b", traffic_percentage=20),
        entity(f"127.0.0.1:{free_port()}", name="c", traffic_percentage=0),
    )
    wait_until_answered(gateway)

    names = [gateway.ask(BODY).headers["served-model-name"] for _ in range(200)]

    assert 15 <= names.count("b") <= 75
    assert names.count("a") + names.count("b") == 200
    assert gateway.ask(BODY, entity="b").headers["served-model-name"] == "b"
    other.stop()


def test_the_least_busy_replica_gets_the_request(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    busy = StandInReplica()
    hold = threading.Event()
    busy.behave = lambda handler, rows: not hold.wait(10)
    publisher.route(entity(busy.address, replica.address, max_in_flight=100))
    wait_until_answered(gateway, 404, endpoint="other")

    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(gateway.ask(BODY).json())) for _ in range(30)
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    hold.set()
    for thread in threads:
        thread.join()

    assert results == [ANSWER] * 30
    assert busy.calls <= 5
    busy.stop()


def test_many_rows_are_sent_in_parts_and_answered_in_order(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    publisher.route(entity(replica.address, max_batch_size=8, max_in_flight=2))
    wait_until_answered(gateway)
    replica.rows.clear()
    rows = [[float(n), 0.0, 1.0] for n in range(100)]

    response = gateway.ask({"inputs": rows})

    assert response.json() == {"predictions": [[2 * n, 0.0, 2.0] for n in range(100)]}
    assert sorted(replica.rows) == [4, *[8] * 12]
    assert replica.most_in_flight <= 2
