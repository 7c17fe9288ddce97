"""MLflow's own scoring server behind the gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serving.protocol.words import UNEXPECTED
from serving.spec import Backend
from tests.support.gateway import (
    GatewayServer,
    Publisher,
    StandInReplica,
    entity,
    respond,
    wait_until_answered,
)

BODY = {"inputs": [[1, 2, 3]]}
ANSWER = {"predictions": [[2.0, 4.0, 6.0]]}


@pytest.mark.parametrize(
    ("status", "answer", "expected", "words"),
    [
        (
            400,
            {
                "error_code": "BAD_REQUEST",
                "message": UNEXPECTED,
                "stack_trace": "Traceback ...\n  File x\nValueError: no negatives\n",
            },
            400,
            "for inference. ValueError: no negatives",
        ),
        (
            400,
            {
                "error_code": "INVALID_PARAMETER_VALUE",
                "message": "Failed to predict data 'x'. \nError: Failed to enforce schema",
            },
            400,
            "Failed to enforce schema",
        ),
        (500, "Internal Server Error", 400, "Encountered an unexpected error"),
        (504, "Request processing time exceeded limit", 504, "Timed out"),
    ],
)
def test_errors_of_mlflow_s_server_take_our_shape(
    gateway: GatewayServer,
    publisher: Publisher,
    replica: StandInReplica,
    status: int,
    answer: Any,
    expected: int,
    words: str,
) -> None:
    replica.behave = lambda handler, rows: respond(handler, status, json.dumps(answer).encode())
    publisher.route(entity(replica.address, backend=Backend.STANDARD))

    response = wait_until_answered(gateway, expected)

    assert response.json().keys() == {"error_code", "message", "details", "request_id"}
    assert words in response.json()["message"]
    if isinstance(answer, dict):
        assert response.json()["error_code"] == answer["error_code"]


def test_a_model_s_own_refusal_is_no_fault_of_the_replica(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    answer = json.dumps({"error_code": "TEMPORARILY_UNAVAILABLE", "message": "no quota"}).encode()
    replica.behave = lambda handler, rows: respond(handler, 503, answer)
    publisher.route(entity(replica.address, backend=Backend.STANDARD))

    response = wait_until_answered(gateway, 400)

    assert response.json()["error_code"] == "BAD_REQUEST"
    assert response.json()["message"] == "no quota"


def test_a_table_as_csv_goes_to_mlflow_s_server_as_it_came(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    seen: list[str] = []

    def serve(handler: Any, rows: int) -> bool:
        seen.append(handler.headers["Content-Type"])
        return respond(handler, 200, b'{"predictions": [1]}')

    replica.behave = serve
    publisher.route(entity(replica.address, backend=Backend.STANDARD))
    wait_until_answered(gateway)

    response = gateway.ask(b"a\n1\n", headers={"Content-Type": "text/csv; charset=utf-8"})

    assert response.json() == {"predictions": [1]}
    assert seen[-1] == "text/csv"
    assert replica.texts[-1] == b"a\n1\n"


def test_mlflow_s_server_gets_only_what_it_knows(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    seen: list[Any] = []

    def serve(handler: Any, rows: int) -> bool:
        seen.append(handler.path)
        return respond(handler, 200, b'{"predictions": [1]}')

    replica.behave = serve
    publisher.route(entity(replica.address, backend=Backend.STANDARD))
    body = {"inputs": [[1]], "params": {"a": 1}, "client_request_id": "7", "usage_context": {}}

    response = wait_until_answered(gateway, body=body)

    assert response.json() == {"predictions": [1]}
    assert set(seen) == {"/invocations"}
    assert replica.bodies[-1] == {"inputs": [[1]], "params": {"a": 1}}
