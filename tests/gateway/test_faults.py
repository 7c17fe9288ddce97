"""What failing replicas cost the caller: time where possible, one clear error else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from serving.spec import Backend
from tests.support.gateway import (
    GatewayServer,
    Once,
    Publisher,
    StandInReplica,
    drop,
    entity,
    free_port,
    respond,
    triton_error,
    wait_until_answered,
)

BODY = {"inputs": [[1, 2, 3]]}
ANSWER = {"predictions": [[2.0, 4.0, 6.0]]}


@pytest.mark.parametrize(
    "fault",
    [
        lambda handler, rows: drop(handler),
        triton_error(500, "Stub process 'model_0_0' is not healthy."),
        triton_error(400, "Request for unknown model: 'model' is not found"),
        triton_error(503, "Server is not ready"),
        lambda handler, rows: bool(handler.wfile.write(b"nonsense\r\n\r\n")) and drop(handler),
    ],
    ids=["killed", "dead stub", "not loaded", "starting", "not HTTP"],
)
def test_a_replica_that_fails_once_costs_time_and_not_an_error(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica, fault: Any
) -> None:
    publisher.route(entity(replica.address))
    wait_until_answered(gateway)
    replica.behave = Once(fault)

    assert gateway.ask(BODY).json() == ANSWER


def test_another_replica_takes_over_from_one_that_hangs_up(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    broken = StandInReplica()
    broken.behave = lambda handler, rows: drop(handler)
    publisher.route(entity(broken.address, replica.address))
    wait_until_answered(gateway)

    responses = gateway.ask_all([BODY] * 30)

    assert [response.status_code for response in responses] == [200] * 30
    assert broken.calls < 10
    broken.stop()


def test_requests_wait_while_their_only_replica_restarts(
    gateway: GatewayServer, publisher: Publisher
) -> None:
    port = free_port()
    first = StandInReplica(port)
    publisher.route(entity(first.address))
    wait_until_answered(gateway)
    first.behave = lambda handler, rows: drop(handler)
    first.stop()

    restarted: list[StandInReplica] = []
    threading.Timer(1.5, lambda: restarted.append(StandInReplica(port))).start()
    responses = gateway.ask_all([BODY] * 20)

    assert [response.status_code for response in responses] == [200] * 20
    restarted[0].stop()


def test_a_request_that_ends_every_replica_is_given_up(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    publisher.route(entity(replica.address))
    wait_until_answered(gateway)
    replica.behave = lambda handler, rows: drop(handler)
    before = replica.calls

    response = gateway.ask(BODY)

    assert response.status_code == 503
    assert "ended 3 times" in response.json()["message"]
    assert replica.calls - before == 3


def test_a_replica_that_stays_away_is_one_clear_503(
    start_gateway: Callable[..., GatewayServer], publisher: Publisher
) -> None:
    gateway = start_gateway(recovery_s=0.7)
    publisher.route(entity(f"127.0.0.1:{free_port()}"))

    response = wait_until_answered(gateway, 503)

    assert response.json()["error_code"] == "TEMPORARILY_UNAVAILABLE"
    assert response.headers["retry-after"].isdigit()


def test_replicas_can_be_exchanged_under_load_without_an_error(
    gateway: GatewayServer, publisher: Publisher
) -> None:
    replicas = [StandInReplica()]
    publisher.route(entity(replicas[0].address))
    wait_until_answered(gateway)
    stop = threading.Event()
    failures: list[str] = []
    answers: list[str] = []

    def caller() -> None:
        while not stop.is_set():
            response = gateway.ask(BODY)
            (answers if response.json() == ANSWER else failures).append(response.text)

    callers = [threading.Thread(target=caller) for _ in range(6)]
    for thread in callers:
        thread.start()
    for _ in range(3):
        time.sleep(0.3)
        replicas.append(StandInReplica())
        publisher.route(entity(replicas[-1].address))
        replicas[-2].behave = lambda handler, rows: drop(handler)
        replicas[-2].stop()
    time.sleep(0.3)
    stop.set()
    for thread in callers:
        thread.join()

    assert failures == []
    assert len(answers) > 20
    replicas[-1].stop()


def test_replicas_that_are_all_away_for_a_moment_are_waited_for(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    publisher.route(entity(replica.address))
    wait_until_answered(gateway)
    publisher.route(entity(), message="Replicas are restarting.")
    time.sleep(0.2)
    threading.Timer(0.7, lambda: publisher.route(entity(replica.address))).start()

    response = gateway.ask(BODY)

    assert response.json() == ANSWER
    assert response.elapsed.total_seconds() > 0.3


def test_a_request_is_read_anew_where_the_endpoint_changes_to_another_model(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    gone = StandInReplica()
    publisher.route(entity(gone.address))
    wait_until_answered(gateway)
    standard = StandInReplica()
    standard.behave = lambda handler, rows: respond(handler, 200, b'{"predictions": [NaN, 1.5]}')

    def change_and_drop(handler: Any, rows: int) -> bool:
        publisher.route(
            entity(standard.address, name="model-2", backend=Backend.STANDARD, entity_version="2")
        )
        return drop(handler)

    gone.behave = change_and_drop

    response = gateway.ask(BODY)

    assert response.text == '{"predictions": [NaN, 1.5]}'  # as MLflow's server wrote it
    assert response.headers["served-model-name"] == "model-2"
    gone.stop()
    standard.stop()


@pytest.mark.parametrize(
    ("status", "message", "expected", "code"),
    [
        (400, "the model says no", 400, "BAD_REQUEST"),
        (
            501,
            "The model returned 1 outputs for 2 inputs; it cannot be batched.",
            400,
            "INVALID_STATE",
        ),
        (500, "something else", 500, "INTERNAL_ERROR"),
        (503, "Request timeout expired", 504, "DEADLINE_EXCEEDED"),
        (500, "Failed to increase the shared memory pool size", 503, "TEMPORARILY_UNAVAILABLE"),
    ],
)
def test_what_triton_refuses_is_said_once(
    gateway: GatewayServer,
    publisher: Publisher,
    replica: StandInReplica,
    status: int,
    message: str,
    expected: int,
    code: str,
) -> None:
    publisher.route(entity(replica.address))
    wait_until_answered(gateway)
    replica.behave = triton_error(status, message)
    before = replica.calls

    response = gateway.ask(BODY)

    assert (response.status_code, response.json()["error_code"]) == (expected, code)
    assert replica.calls - before == 1
    assert (message in response.json()["message"]) == (expected == 400)
