"""A model that brings its own server, behind the gateway: everything goes through as it is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from serving.spec import Backend
from tests.support.entrypoint import save_own_server
from tests.support.gateway import TOKEN, GatewayServer, Publisher, entity, wait_until_answered
from tests.support.launcher import Launcher

COMMAND = "python -u server.py --port 8080"


@pytest.fixture(scope="module")
def address(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> str:
    model = save_own_server(tmp_path_factory.mktemp("own") / "model")
    return launcher.launch("owner", model, backend=Backend.ENTRYPOINT, entrypoint=COMMAND)


@pytest.fixture
def served(gateway: GatewayServer, publisher: Publisher, address: str) -> GatewayServer:
    publisher.route(entity(address, backend=Backend.ENTRYPOINT, signature=None, name="own"))
    wait_until_answered(gateway, body={}, headers={"Content-Type": "application/json"})
    return gateway


def ask(gateway: GatewayServer, body: Any, **options: Any) -> requests.Response:
    return requests.post(
        f"{gateway.url}/serving-endpoints/shoal/invocations",
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        data=json.dumps(body),
        timeout=30,
        **options,
    )


def test_a_body_goes_there_and_comes_back_as_it_is(served: GatewayServer) -> None:
    headers = {"Content-Type": "application/x-anything", "Authorization": f"Bearer {TOKEN}"}
    url = f"{served.url}/serving-endpoints/shoal/invocations"

    answer = requests.post(url, data=b"\x00\xff {", headers=headers, timeout=10)

    assert answer.content == b"application/x-anything \x00\xff {"
    assert answer.headers["content-type"] == "text/x-echo"
    assert answer.headers["served-model-name"] == "own"
    assert answer.headers["x-request-id"]
    assert "sandbox" in answer.headers["content-security-policy"]  # whatever it says it is


@pytest.mark.parametrize("status", [202, 400, 418, 500, 503])
def test_the_model_s_own_statuses_and_errors_pass_through(
    served: GatewayServer, status: int
) -> None:
    answer = ask(served, {"status": status})

    assert (answer.status_code, answer.text) == (status, '{"detail": "as you like"}')
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_caller_s_token_is_not_passed_on(served: GatewayServer) -> None:
    assert ask(served, {"headers": 1}).json() == [
        "accept",
        "connection",
        "content-length",
        "content-type",
        "host",
    ]


def test_a_stream_is_passed_on_piece_by_piece(served: GatewayServer) -> None:
    begun = time.monotonic()

    with ask(served, {"stream": 4}, stream=True) as answer:
        pieces = [(line, time.monotonic() - begun) for line in answer.iter_lines() if line]

    assert answer.headers["content-type"] == "text/event-stream"
    assert [line for line, _ in pieces] == [b"data: %d" % number for number in range(4)]
    assert pieces[0][1] < pieces[-1][1] - 0.5


def test_a_stream_that_breaks_off_does_not_look_whole(served: GatewayServer) -> None:
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        ask(served, {"stream": 2, "break": True})

    assert ask(served, {"a": 1}).json() == {"a": 1}


def test_a_server_that_dies_on_a_request_gets_it_again_and_is_restarted(
    served: GatewayServer, tmp_path: Path
) -> None:
    mark = tmp_path / "died"

    answer = ask(served, {"die": str(mark)})

    assert mark.exists()
    assert (answer.status_code, answer.json()) == (200, {"die": str(mark)})


@pytest.fixture
def short(served: GatewayServer, publisher: Publisher, address: str) -> str:
    """The URL of an endpoint whose requests have half a second, one at a time."""
    own = entity(address, backend=Backend.ENTRYPOINT, signature=None, name="own", max_in_flight=1)
    publisher.route(own, endpoint="short", request_timeout_s=0.5)
    headers = {"Content-Type": "application/json"}
    wait_until_answered(served, body={}, endpoint="short", headers=headers)
    return f"{served.url}/serving-endpoints/short/invocations"


HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


def test_a_request_that_takes_too_long_is_a_504_but_a_stream_may_last(short: str) -> None:
    late = requests.post(short, data='{"sleep": 2}', headers=HEADERS, timeout=10)
    streamed = requests.post(short, data='{"stream": 4}', headers=HEADERS, timeout=10)

    assert (late.status_code, late.json()["error_code"]) == (504, "DEADLINE_EXCEEDED")
    # Each piece has as long as a whole answer; all of them together take longer.
    assert streamed.text.count("data:") == 4


def test_a_caller_who_leaves_in_the_middle_of_a_stream_frees_the_place(short: str) -> None:
    with requests.post(
        short, data='{"stream": 100}', headers=HEADERS, timeout=10, stream=True
    ) as answer:
        assert next(answer.iter_lines()) == b"data: 0"

    again = requests.post(short, data='{"a": 1}', headers=HEADERS, timeout=10)

    assert again.json() == {"a": 1}


def test_the_open_inference_protocol_is_refused(served: GatewayServer) -> None:
    answer = requests.post(
        f"{served.url}/serving-endpoints/shoal/v2/models/model/infer",
        json={"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=10,
    )

    assert answer.status_code == 400
    assert "brings its own server" in answer.json()["error"]
