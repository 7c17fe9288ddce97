"""Who may ask, what is served, and the words and the shape of each refusal."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import requests

from serving import bus
from tests.support.gateway import (
    TOKEN,
    GatewayServer,
    Publisher,
    StandInReplica,
    entity,
    wait_until_answered,
)
from tests.support.valkey import Valkey

BODY = {"inputs": [[1, 2, 3]]}


def check(response: requests.Response, status: int, code: str) -> dict[str, object]:
    """The one shape of an error."""
    body: dict[str, object] = response.json()
    assert (response.status_code, body["error_code"]) == (status, code), body
    assert body.keys() == {"error_code", "message", "details", "request_id"}
    assert body["message"]
    assert body["request_id"] == response.headers["x-request-id"]
    assert response.headers["content-type"] == "application/json"
    return body


@pytest.fixture
def served(gateway: GatewayServer, publisher: Publisher, replica: StandInReplica) -> GatewayServer:
    publisher.route(entity(replica.address))
    wait_until_answered(gateway)
    return gateway


def test_a_caller_gets_the_predictions_and_the_entity_s_name(served: GatewayServer) -> None:
    response = served.ask({"inputs": [[1, 2, 3], [4, 5, 6]]})

    assert response.json() == {"predictions": [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]}
    assert response.headers["served-model-name"] == "model-1"
    assert response.headers["content-type"] == "application/json"


def test_the_caller_s_request_id_comes_back(served: GatewayServer) -> None:
    given = served.ask(BODY, headers={"X-Request-Id": "my-id-7"})
    odd = served.ask(BODY, headers={"X-Request-Id": "smörgås".encode("latin-1")})  # type: ignore[dict-item]  # bytes that are not ASCII

    assert given.headers["x-request-id"] == "my-id-7"
    assert odd.headers["x-request-id"].isascii()
    assert served.ask(BODY).headers["x-request-id"] != served.ask(BODY).headers["x-request-id"]


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer ", "Bearer wrong", "Digest x", "wrong"])
def test_without_a_valid_token_nothing_is_told(served: GatewayServer, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}

    for endpoint in ("shoal", "unknown"):
        response = served.ask(BODY, endpoint=endpoint, token=None, headers=headers)
        check(response, 401, "UNAUTHENTICATED")


def test_a_token_may_come_as_a_password(served: GatewayServer) -> None:
    secret = base64.b64encode(f"token:{TOKEN}".encode()).decode()

    response = served.ask(BODY, token=None, headers={"Authorization": f"Basic {secret}"})

    assert response.status_code == 200


def test_an_expired_token_is_refused(served: GatewayServer, publisher: Publisher) -> None:
    publisher.principal("short", is_admin=True, expires_at=time.time() + 3)
    wait_until_answered(served, token="short", timeout_s=3)

    time.sleep(3)

    check(served.ask(BODY, token="short"), 401, "UNAUTHENTICATED")


@pytest.mark.parametrize("silently", [False, True])
def test_a_revoked_token_stops_within_two_seconds(
    served: GatewayServer, publisher: Publisher, silently: bool
) -> None:
    publisher.revoke(TOKEN, silently=silently)

    wait_until_answered(served, 401, timeout_s=2.5 if silently else 2)


def test_levels_come_from_the_user_and_the_groups(
    served: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    publisher.principal("admin", is_admin=True)
    publisher.principal("member", groups=("team",))
    publisher.principal("viewer", groups=("lookers",))
    publisher.principal("stranger", groups=("others",))
    publisher.route(
        entity(replica.address), group_levels={"team": "CAN_MANAGE", "lookers": "CAN_VIEW"}
    )

    assert wait_until_answered(served, token="member").status_code == 200
    assert wait_until_answered(served, token="admin").status_code == 200
    check(wait_until_answered(served, 403, token="viewer"), 403, "PERMISSION_DENIED")
    check(wait_until_answered(served, 404, token="stranger"), 404, "RESOURCE_DOES_NOT_EXIST")


def test_an_unknown_endpoint_and_a_hidden_one_look_the_same(
    served: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    publisher.route(entity(replica.address), endpoint="hidden", user_levels={})

    unknown = check(served.ask(BODY, endpoint="other"), 404, "RESOURCE_DOES_NOT_EXIST")
    hidden = check(served.ask(BODY, endpoint="hidden"), 404, "RESOURCE_DOES_NOT_EXIST")

    assert str(unknown["message"]).replace("other", "") == str(hidden["message"]).replace(
        "hidden", ""
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/serving-endpoints/shoal/invocations"),
        ("PUT", "/serving-endpoints/shoal/invocations"),
        ("POST", "/serving-endpoints/shoal"),
        ("POST", "/serving-endpoints/shoal/invocations/"),
        ("POST", "/serving-endpoints/shoal/served-models/invocations"),
        ("POST", "/serving-endpoints//invocations"),
    ],
)
def test_other_paths_and_methods_are_not_there(
    served: GatewayServer, method: str, path: str
) -> None:
    response = requests.request(method, served.url + path, timeout=5)

    check(response, 404, "ENDPOINT_NOT_FOUND")


def test_one_entity_can_be_addressed(served: GatewayServer) -> None:
    assert served.ask(BODY, entity="model-1").status_code == 200
    check(served.ask(BODY, entity="model-2"), 404, "RESOURCE_DOES_NOT_EXIST")


def test_a_stopped_endpoint_says_so(
    served: GatewayServer, publisher: Publisher, replica: StandInReplica
) -> None:
    publisher.route(entity(replica.address), is_stopped=True)

    check(wait_until_answered(served, 400), 400, "INVALID_STATE")


def test_an_endpoint_that_is_not_ready_says_why(
    served: GatewayServer, publisher: Publisher
) -> None:
    publisher.route(endpoint="new", message="The endpoint is being created.")
    publisher.route(entity(), endpoint="starting", message="Replicas are starting.")

    for endpoint, message in (
        ("new", "The endpoint is being created."),
        ("starting", "Replicas are starting."),
    ):
        response = wait_until_answered(served, 503, endpoint=endpoint)
        assert check(response, 503, "TEMPORARILY_UNAVAILABLE")["message"] == message
        assert response.headers["retry-after"].isdigit()


def test_a_body_beyond_the_limit_is_a_400(
    start_gateway: Callable[..., GatewayServer], publisher: Publisher, replica: StandInReplica
) -> None:
    gateway = start_gateway(max_request_bytes=2**20)
    publisher.route(entity(replica.address))
    wait_until_answered(gateway)
    body = b'{"inputs": [[1,2,3]]' + b" " * 2**20 + b"}"

    response = gateway.ask(body)

    assert "1 MB" in str(check(response, 400, "BAD_REQUEST")["message"])


def head_of(length: int) -> bytes:
    """The head of a scoring request whose body has so many bytes."""
    return (
        f"POST /serving-endpoints/shoal/invocations HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def test_a_body_that_never_comes_is_given_up(
    start_gateway: Callable[..., GatewayServer], publisher: Publisher, replica: StandInReplica
) -> None:
    gateway = start_gateway(body_timeout_s=0.5)
    publisher.route(entity(replica.address))
    wait_until_answered(gateway)
    head = head_of(100) + b"{"

    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as connection:
        connection.sendall(head)
        answer = connection.recv(65536)

    assert answer.startswith(b"HTTP/1.1 400")
    assert b"did not arrive in time" in answer


def test_hundreds_of_half_sent_requests_cost_others_nothing(
    start_gateway: Callable[..., GatewayServer], publisher: Publisher, replica: StandInReplica
) -> None:
    gateway = start_gateway(head_timeout_s=1.5, body_timeout_s=1.5)
    publisher.route(entity(replica.address, max_in_flight=1))
    wait_until_answered(gateway)
    head = head_of(100) + b"{"
    halves = [head, head[:60], b""] * 100

    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=10))
            for _ in halves
        ]
        for connection, half in zip(connections, halves, strict=True):
            connection.sendall(half)
        answers = [gateway.ask({"inputs": [[1, 2, 3]]}).status_code for _ in range(20)]
        ends = [connection.recv(65536)[:12] for connection in connections]

    assert answers == [200] * 20
    assert ends == [b"HTTP/1.1 400", b"", b""] * 100


def test_a_second_head_on_a_connection_is_waited_for_as_long_as_the_first(
    start_gateway: Callable[..., GatewayServer], publisher: Publisher, replica: StandInReplica
) -> None:
    gateway = start_gateway(head_timeout_s=0.5)
    publisher.route(entity(replica.address))
    wait_until_answered(gateway)
    body = b'{"inputs": [[1, 2, 3]]}'
    whole = head_of(len(body)) + body

    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        connection.sendall(whole)
        first = connection.recv(65536)
        time.sleep(0.7)
        connection.sendall(whole)
        second = connection.recv(65536)
        connection.sendall(whole[:50])
        end = connection.recv(65536)

    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 200")
    assert end == b""


def test_a_body_may_take_longer_than_a_head(
    start_gateway: Callable[..., GatewayServer], publisher: Publisher, replica: StandInReplica
) -> None:
    gateway = start_gateway(head_timeout_s=0.5)
    publisher.route(entity(replica.address))
    wait_until_answered(gateway)
    body = b'{"inputs": [[1, 2, 3]]}'
    head = head_of(len(body))

    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        answers = []
        for _ in range(2):
            connection.sendall(head)
            time.sleep(0.8)
            connection.sendall(body)
            answers.append(connection.recv(65536))

    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 200"] * 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "valid JSON"),
        (b"\xff", "UnicodeDecodeError"),
        (b'{"messages": [{"role": "user"}]}', "custom model"),
        (b'{"inputs": [[1,2,3]], "stream": true}', "stream"),
        (b'{"inputs": [["a","b","c"]]}', "could not convert string to float"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_body_is_a_clear_400(served: GatewayServer, body: bytes, words: str) -> None:
    assert words in str(check(served.ask(body), 400, "BAD_REQUEST")["message"])


def test_what_does_not_fit_the_signature_has_mlflow_s_code(served: GatewayServer) -> None:
    answer = check(served.ask({"inputs": [[1, 2]]}), 400, "INVALID_PARAMETER_VALUE")

    assert "does not match expected shape (-1, 3)" in str(answer["message"])


def test_another_content_type_is_refused_in_mlflow_s_words(served: GatewayServer) -> None:
    response = served.ask(b"<x/>", headers={"Content-Type": "text/xml"})

    answer = check(response, 400, "BAD_REQUEST")
    assert "only supports the following content types" in str(answer["message"])


def test_a_table_as_csv_is_no_tensor(served: GatewayServer) -> None:
    response = served.ask(b"a,b,c\n1,2,3\n", headers={"Content-Type": "text/csv"})

    answer = check(response, 400, "BAD_REQUEST")
    assert "Failed to parse input as a Pandas DataFrame" in str(answer["message"])


def test_token_use_is_recorded(served: GatewayServer, valkey: redis.Redis) -> None:
    sha256 = hashlib.sha256(TOKEN.encode()).hexdigest()
    deadline = time.monotonic() + 7

    while not (used := valkey.hget(bus.TOKEN_USE, sha256)):
        assert time.monotonic() < deadline
        time.sleep(0.1)

    assert abs(float(str(used)) - time.time()) < 10


# ---------------------------------------------------------------- while Redis is away


def test_endpoints_serve_while_redis_is_away_and_after_it_lost_its_data(
    start_gateway: Callable[..., GatewayServer], replica: StandInReplica, tmp_path: Path
) -> None:
    server = Valkey(tmp_path / "valkey.sock")
    server.start()
    publisher = Publisher(redis.Redis.from_url(server.url, decode_responses=True))
    publisher.begin()
    publisher.route(entity(replica.address))
    gateway = start_gateway(redis_url=server.url)
    wait_until_answered(gateway)

    server.kill()
    for _ in range(5):
        assert gateway.ask(BODY).status_code == 200
        time.sleep(0.1)
    server.start()  # empty, and nothing is published yet
    time.sleep(3)
    assert gateway.ask(BODY).status_code == 200
    publisher.begin()  # published again, and the endpoint is no longer there
    wait_until_answered(gateway, 404)
    server.kill()


def test_a_gateway_without_redis_asks_to_come_back(
    start_gateway: Callable[..., GatewayServer],
) -> None:
    gateway = start_gateway(redis_url="redis://127.0.0.1:1")

    check(gateway.ask(BODY), 503, "TEMPORARILY_UNAVAILABLE")
