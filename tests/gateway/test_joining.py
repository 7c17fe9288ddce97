"""Concurrent callers' rows travel as one request to Triton, and nobody notices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.gateway import (
    GatewayServer,
    Publisher,
    StandInReplica,
    drop,
    entity,
    slow,
    triton_error,
    wait_until_answered,
)

OPEN = {
    "inputs": json.dumps(
        [{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, -1]}}]
    ),
    "outputs": None,
    "params": None,
}
BAD = 13.0


def row(number: float, width: int = 3, **fields: Any) -> dict[str, Any]:
    return {"inputs": [[number] * width], **fields}


def doubled(number: float, width: int = 3) -> dict[str, Any]:
    return {"predictions": [[2 * number] * width]}


@pytest.fixture
def served(gateway: GatewayServer, publisher: Publisher, replica: StandInReplica) -> GatewayServer:
    """A slow stand-in behind an endpoint that takes vectors of any width."""
    publisher.route(entity(replica.address, signature=OPEN))
    wait_until_answered(gateway)
    replica.rows.clear()
    replica.behave = slow(0.15)
    return gateway


def test_what_gathers_behind_a_busy_replica_travels_together(
    served: GatewayServer, replica: StandInReplica
) -> None:
    responses = served.ask_all([row(n) for n in range(30)])

    assert [response.json() for response in responses] == [doubled(n) for n in range(30)]
    assert sum(replica.rows) == 30
    assert len(replica.rows) <= 8


def test_rows_of_another_shape_or_with_other_parameters_travel_by_themselves(
    served: GatewayServer, replica: StandInReplica
) -> None:
    kinds = [(3, 1), (4, 1), (3, 2)]
    asked = [(n, *kinds[n % 3]) for n in range(24)]

    responses = served.ask_all([row(n, width, params={"k": k}) for n, width, k in asked])

    assert [r.json() for r in responses] == [doubled(n, width) for n, width, _ in asked]
    assert max(replica.rows) <= 8


def test_a_group_holds_no_more_rows_than_the_model_takes(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    publisher.route(entity(replica.address, max_batch_size=4))
    wait_until_answered(gateway)
    replica.rows.clear()
    replica.behave = slow(0.05)

    responses = gateway.ask_all([{"inputs": [[n, n, n]] * 3} for n in range(10)])

    assert [r.json()["predictions"] for r in responses] == [[[2 * n] * 3] * 3 for n in range(10)]
    assert max(replica.rows) <= 4


def test_the_request_that_fails_fails_alone(served: GatewayServer, replica: StandInReplica) -> None:
    refuse = triton_error(400, "ValueError: thirteen")

    def behave(handler: Any, rows: int) -> bool:
        slow(0.1)(handler, rows)
        return BAD in handler.seen and refuse(handler, rows)

    replica.behave = behave

    responses = served.ask_all([row(n) for n in range(20)])

    statuses = [response.status_code for response in responses]
    assert statuses == [400 if n == BAD else 200 for n in range(20)]
    assert "thirteen" in responses[int(BAD)].json()["message"]
    assert all(r.json() == doubled(n) for n, r in enumerate(responses) if n != BAD)


def test_the_request_that_kills_the_model_is_found_and_the_others_are_answered(
    served: GatewayServer, replica: StandInReplica
) -> None:
    def behave(handler: Any, rows: int) -> bool:
        slow(0.05)(handler, rows)
        return BAD in handler.seen and drop(handler)

    replica.behave = behave

    responses = served.ask_all([row(n) for n in range(20)])

    statuses = [response.status_code for response in responses]
    assert statuses == [503 if n == BAD else 200 for n in range(20)]
    assert "ended 3 times" in responses[int(BAD)].json()["message"]


def test_the_answer_tells_where_the_time_went(
    served: GatewayServer, replica: StandInReplica
) -> None:
    replica.behave = slow(0.2)

    header = served.ask(row(1)).headers["server-timing"]

    parts = dict(part.split(";dur=") for part in header.split(", "))
    assert parts.keys() == {"gateway", "replica"}  # the stand-in does not tell its compute time
    assert float(parts["replica"]) >= 200
    assert float(parts["gateway"]) < 200
