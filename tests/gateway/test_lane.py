"""A small request that arrives whole takes the short way; nothing but its speed tells."""

from __future__ import annotations

import json
import socket
import time
from http.client import HTTPResponse
from typing import Any

import numpy as np
import pytest

from serving.gateway.server import HOLD_S
from serving.spec import Backend
from tests.support.gateway import (
    TOKEN,
    VECTOR,
    GatewayServer,
    Once,
    Publisher,
    StandInReplica,
    entity,
    respond,
    slow,
    triton_error,
    wait_until_answered,
)

BODY = json.dumps({"inputs": [[1, 2, 3]]}).encode()
ANSWER = {"predictions": [[2.0, 4.0, 6.0]]}
DOUBLED = np.array([[2, 4, 6]], dtype=np.float32).tobytes()
DESCRIBED = {"model_name": "model", "model_version": "1", "id": "7"}
OUTPUT = {"name": "output_0", "datatype": "FP32", "shape": [1, 3]}
BINARY = {**OUTPUT, "parameters": {"binary_data_size": 12}}
LISTED = {**OUTPUT, "data": [2.0, 4.0, 6.0]}


def request(
    body: bytes = BODY,
    *,
    token: str = TOKEN,
    endpoint: str = "shoal",
    what: str = "invocations",
    headers: str = "Content-Type: application/json\r\n",
) -> bytes:
    return (
        f"POST /serving-endpoints/{endpoint}/{what} HTTP/1.1\r\nHost: shoal\r\n"
        f"Authorization: Bearer {token}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def infer(
    rows: Any = ((1, 2, 3),),
    *,
    binary: bool = True,
    model: str = "model",
    shape: tuple[int, ...] = (1, 3),
    **parameters: object,
) -> bytes:
    """A request of the Open Inference Protocol."""
    tensor: dict[str, object] = {"name": "x", "shape": shape, "datatype": "FP32"}
    data = b""
    if binary:
        data = np.array(rows, dtype=np.float32).tobytes()
        tensor["parameters"] = {"binary_data_size": len(data)}
    else:
        tensor["data"] = rows
    fields = {"id": "7", "inputs": [tensor], "parameters": parameters}
    text = json.dumps(fields).encode()
    headers = f"Inference-Header-Content-Length: {len(text)}\r\n" if binary else ""
    return request(text + data, what=f"v2/models/{model}/infer", headers=headers)


def connect(gateway: GatewayServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=10)


def answer_on(connection: socket.socket) -> tuple[HTTPResponse, Any]:
    """The next answer, by itself: nothing beyond it is read. Binary data follows its JSON."""
    response = HTTPResponse(connection, method="POST")
    response.fp.close()
    response.fp = connection.makefile("rb", buffering=0)  # type: ignore[assignment]
    response.begin()
    body = response.read()
    length = response.headers["inference-header-content-length"]
    if length is None:
        return response, json.loads(body)
    return response, (json.loads(body[: int(length)]), body[int(length) :])


def the_usual_way(whole: bytes) -> bytes:
    """The same request as the lane does not take it: with a query string."""
    return whole.replace(b" HTTP/1.1", b"?usual HTTP/1.1", 1)


def ask(
    gateway: GatewayServer, *packets: bytes, pause_s: float = 0.005
) -> tuple[HTTPResponse, Any]:
    """Send packets, each by itself, and read the answer."""
    with connect(gateway) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for packet in packets[:-1]:
            connection.sendall(packet)
            time.sleep(pause_s)
        connection.sendall(packets[-1])
        return answer_on(connection)


@pytest.fixture
def served(gateway: GatewayServer, publisher: Publisher, replica: StandInReplica) -> GatewayServer:
    publisher.route(entity(replica.address))
    wait_until_answered(gateway)
    return gateway


@pytest.mark.parametrize(
    ("whole", "answer"),
    [
        (request(), ANSWER),
        (infer(binary_data_output=True), ({**DESCRIBED, "outputs": [BINARY]}, DOUBLED)),
        (infer([[1, 2, 3]], binary=False), {**DESCRIBED, "outputs": [LISTED]}),
        (infer(model="model-1"), {**DESCRIBED, "model_name": "model-1", "outputs": [LISTED]}),
    ],
    ids=["MLflow", "binary tensors", "tensors as JSON", "served entity"],
)
def test_both_ways_give_the_same_answer_with_the_same_headers(
    served: GatewayServer, whole: bytes, answer: Any
) -> None:
    before = served.lane.entered

    quick, quick_body = ask(served, whole)
    assert served.lane.entered == before + 1
    usual, usual_body = ask(served, the_usual_way(whole))
    assert served.lane.entered == before + 1

    assert quick_body == usual_body == answer
    assert quick.status == usual.status == 200
    assert {name.lower() for name, _ in quick.getheaders()} == {
        name.lower() for name, _ in usual.getheaders()
    }
    assert quick.headers["served-model-name"] == usual.headers["served-model-name"] == "model-1"


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        (request(token="nobody"), 401),
        (request(endpoint="unknown"), 404),
        (request(b"{"), 400),
        (request(b'{"inputs": [[1, 2]]}'), 400),
        (request(b'{"inputs": "x"}'), 400),
        (infer(model="other"), 404),
        (infer([[1, 2]]), 400),
        (infer([], shape=(0, 3)), 400),
        (infer(sequence_id=3), 501),
    ],
    ids=[
        *("token", "endpoint", "JSON", "shape", "type"),
        *("model", "tensor's size", "no rows", "not offered"),
    ],
)
def test_what_is_wrong_is_said_in_the_same_words(
    served: GatewayServer, wrong: bytes, status: int
) -> None:
    quick, quick_body = ask(served, wrong)
    usual, usual_body = ask(served, the_usual_way(wrong))

    assert quick.status == usual.status == status
    assert {**quick_body, "request_id": ""} == {**usual_body, "request_id": ""}


def test_a_body_right_behind_its_head_is_waited_for(served: GatewayServer) -> None:
    head, _, body = request().partition(b"\r\n\r\n")
    before = served.lane.entered

    answers = [ask(served, head + b"\r\n\r\n", body)[1] for _ in range(20)]

    assert answers == [ANSWER] * 20
    assert served.lane.entered > before  # a stalled machine may part some of them


def test_a_body_that_comes_late_is_read_on_the_usual_way(served: GatewayServer) -> None:
    whole = request()
    before = served.lane.entered

    assert ask(served, whole[:20], whole[20:-5], whole[-5:], pause_s=5 * HOLD_S)[1] == ANSWER
    assert served.lane.entered == before


def test_a_large_request_is_not_waited_for(served: GatewayServer) -> None:
    whole = request(BODY + b" " * 200_000)
    before = served.lane.entered

    assert ask(served, whole[:100_000], whole[100_000:])[1] == ANSWER
    assert served.lane.entered == before


def test_requests_in_one_packet_are_answered_in_order(
    served: GatewayServer, replica: StandInReplica
) -> None:
    replica.behave = Once(slow(0.2))
    bodies = [json.dumps({"inputs": [[n, n, n]]}).encode() for n in range(4)]

    with connect(served) as connection:
        connection.sendall(b"".join(request(body) for body in bodies))
        answers = [answer_on(connection)[1] for _ in bodies]

    assert answers == [{"predictions": [[2.0 * n] * 3]} for n in range(4)]


def test_traffic_is_split_by_weight_between_backends_too(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    mlflow = StandInReplica()
    mlflow.behave = lambda handler, rows: respond(handler, 200, json.dumps(ANSWER).encode())
    publisher.route(
        entity(replica.address, name="a", traffic_percentage=50),
        entity(mlflow.address, name="b", traffic_percentage=50, backend=Backend.STANDARD),
    )
    wait_until_answered(gateway)

    with connect(gateway) as connection:
        names = []
        for _ in range(200):
            connection.sendall(request())
            names.append(answer_on(connection)[0].headers["served-model-name"])

    assert 70 <= names.count("a") <= 130  # within four standard deviations of 100
    mlflow.stop()


def test_it_has_a_deadline(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    publisher.route(entity(replica.address), request_timeout_s=0.3)
    wait_until_answered(gateway)
    replica.behave = Once(slow(2))
    before = gateway.lane.entered

    response, body = ask(gateway, request())

    assert gateway.lane.entered == before + 1
    assert (response.status, body["error_code"]) == (504, "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("whole", [request(), infer()], ids=["MLflow", "tensors"])
def test_the_model_s_error_is_the_caller_s(
    served: GatewayServer, replica: StandInReplica, whole: bytes
) -> None:
    replica.behave = triton_error(400, "ValueError: no")
    before = served.lane.entered

    response, body = ask(served, whole)

    assert served.lane.entered == before + 1
    assert response.status == 400
    assert "ValueError: no" in body["message"]
    assert body.get("error") == (body["message"] if b"/v2/" in whole else None)


def test_who_hangs_up_frees_the_place(
    gateway: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    publisher.route(entity(replica.address, max_in_flight=1))
    wait_until_answered(gateway)
    replica.behave = Once(slow(5))
    calls, before = replica.calls, gateway.lane.entered
    connection = connect(gateway)
    connection.sendall(request())
    while replica.calls == calls:
        time.sleep(0.01)

    connection.close()

    assert ask(gateway, request())[1] == ANSWER
    assert gateway.lane.entered == before + 2


def test_an_endpoint_that_changes_meanwhile_still_answers(
    served: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    replica.behave = slow(0.5)
    successor = StandInReplica()
    successor.factor = 3.0
    before = served.lane.entered
    with connect(served) as first, connect(served) as second, connect(served) as third:
        for connection in (first, second, third):  # the third one waits behind the others
            connection.sendall(request())
        time.sleep(0.2)
        publisher.route(entity(successor.address, signature=VECTOR, entity_version="2"))

        answers = [answer_on(connection)[1] for connection in (first, second, third)]

    assert served.lane.entered == before + 3
    assert all(answer["predictions"][0][0] in {2.0, 3.0} for answer in answers)
    successor.stop()
