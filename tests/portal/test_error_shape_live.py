"""The one error shape from a real server: predictions, files, huge bodies, odd HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import requests

from tests.portal.test_error_shape import BODIES_OF_NO_USE, STATUSES, checked
from tests.support.gateway import Publisher, entity
from tests.support.live_portal import Files, LivePortal

FILE = "/api/2.0/fs/files/Volumes/main/default/shape"
QUERY = "/serving-endpoints/shape/invocations"
CREATE = "/api/2.0/serving-endpoints"
PATIENCE_S = 10


@pytest.fixture(scope="module")
def me(live_portal: LivePortal) -> Iterator[Files]:
    files = Files(live_portal, live_portal.token("shape", is_admin=True))
    client = redis.Redis.from_url(live_portal.valkey.url, decode_responses=True)
    publisher = Publisher(client)
    publisher.begin()
    publisher.route(entity(), endpoint="shape")
    while files("POST", QUERY, json={}).status_code == 404:
        time.sleep(0.05)
    yield files
    publisher.remove_route("shape")
    client.close()


def ask(me: Files, method: str, path: str, **options: Any) -> requests.Response:
    """One call; whatever the answer is, it keeps the contract."""
    began = time.monotonic()
    answer = me(method, path, allow_redirects=False, **options)
    asked = f"{method} {path[:200]}: {answer.status_code} {answer.content[:300]!r}"
    assert time.monotonic() - began < PATIENCE_S, asked
    assert answer.status_code in STATUSES, asked
    if answer.status_code in {200, 204} or method == "HEAD":
        return answer
    checked(answer.status_code, answer.headers["Content-Type"], answer.content, asked)
    if answer.status_code in {429, 503}:
        assert answer.headers["Retry-After"].isdigit()
    return answer


@pytest.mark.parametrize("name", list(BODIES_OF_NO_USE))
def test_a_prediction_of_no_use_is_a_400(me: Files, name: str) -> None:
    for path in (QUERY, "/serving-endpoints/shape/served-models/model-1/invocations"):
        assert ask(me, "POST", path, data=BODIES_OF_NO_USE[name]).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"inputs": None}, {"inputs": []}, {"inputs": "x"}, {"inputs": {"a": 1}}),
        *(
            {"inputs": [[1]], "instances": [[1]]},
            {"inputs": [[1, 2]]},
            {"inputs": [["a", "b", "c"]]},
        ),
        *({"inputs": [[1e300, 1, 1]]}, {"dataframe_split": []}, {"dataframe_split": {"data": 1}}),
        *({"dataframe_records": {}}, {"dataframe_records": [1]}, {"messages": []}),
        *({"inputs": [[1, 2, 3]], "params": 7}, {"inputs": [[1, 2, 3]], "stream": True}),
        {"inputs": [[1, [2], 3]]},
    ],
)
def test_an_input_that_does_not_fit_is_no_fault_of_ours(me: Files, body: Any) -> None:
    assert ask(me, "POST", QUERY, json=body).status_code in {200, 400, 503}


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize(
    "path",
    [
        *(
            QUERY,
            "/serving-endpoints/",
            "/serving-endpoints/shape",
            "/serving-endpoints/a/b/c/d/e/f",
        ),
        *("/serving-endpoints", "/api/2.0/fs/transfer/forged", "/api/2.0/fs/files/", "/api/2.0/x"),
        *(
            "/serving-endpoints//invocations",
            "/api/2.0/fs/files/Volumes/%00",
            "/api/2.0/fs/files/..%2f..%2fetc",
        ),
    ],
)
def test_wrong_methods_and_paths(me: Files, method: str, path: str) -> None:
    answer = me(method, path, allow_redirects=False)

    if path.endswith("forged"):  # a signed link speaks as object stores do
        assert answer.status_code == 403
        assert method == "HEAD" or b"<Code>AccessDenied</Code>" in answer.content
    else:
        assert ask(me, method, path).status_code in {400, 404}


@pytest.mark.parametrize("path", [QUERY, f"{FILE}/a", CREATE])
@pytest.mark.parametrize("value", ["", "Bearer", "Bearer wrong", "Basic !", "x", "Bearer \xe9"])
def test_bad_tokens(live_portal: LivePortal, path: str, value: str) -> None:
    for method in ("GET", "PUT", "POST") if path == FILE else ("POST",):
        answer = requests.request(
            method, live_portal.url + path, headers={"Authorization": value}, data=b"{}", timeout=10
        )

        assert answer.status_code == 401
        checked(401, answer.headers["Content-Type"], answer.content, value)


@pytest.mark.parametrize(
    "path",
    [
        *(f"{FILE}/a?action=initiate-upload", f"{FILE}/a?action=%00", f"{FILE}/{'x' * 5000}"),
        *(f"{FILE}/a?action=complete-upload&session_token=%00", f"{FILE}/a/../../b", f"{FILE}//"),
        *(
            "/api/2.0/fs/files/Models/x",
            "/api/2.0/fs/files/Volumes/a/b/c/%ff%fe",
            f"{FILE}/%2e%2e/x",
        ),
        *(f"{FILE}/a%00b", f"{FILE}/a%0ab", f"{FILE}/%ed%a0%80", "/api/2.0/fs/directories/%00"),
    ],
)
def test_odd_files(me: Files, path: str) -> None:
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        for data in (b"", b"{", b"[" * 100_000, b"\xff"):
            ask(me, method, path, data=data)


@pytest.mark.parametrize(
    "header",
    ["bytes=9-", "bytes=-0", "bytes=5-1", "bytes=x", "bytes=0-0,2-3", f"bytes={'9' * 400}-", "é"],
)
def test_odd_ranges(me: Files, header: str) -> None:
    assert me.file("PUT", "/Volumes/main/default/shape/r?overwrite=true", data=b"12345").ok

    answer = me("GET", f"{FILE}/r", headers={"Range": header.encode()})

    assert answer.status_code in {200, 206, 400}


# ---------------------------------------------------------------- huge bodies


def connect(portal: LivePortal) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", portal.port), timeout=PATIENCE_S)
    sock.settimeout(PATIENCE_S)
    return sock


def answer_of(sock: socket.socket) -> tuple[int, str, bytes]:
    """Status, content type and body of the answer that comes now."""
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    return answer.status, answer.headers.get("Content-Type", ""), answer.read()


@pytest.mark.parametrize("path", [CREATE, QUERY, "/api/2.0/none", "/login/"])
def test_an_announced_huge_body_is_refused_before_it_comes(me: Files, path: str) -> None:
    with connect(me.portal) as sock:
        sock.sendall(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {me.value}\r\n"
            "Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{".encode()
        )
        status, kind, body = answer_of(sock)

    assert status == 400
    if path != "/login/":
        error = checked(400, kind, body, path)
        assert "larger than" in error["message"]


@pytest.mark.parametrize("path", [CREATE, QUERY])
def test_an_endless_body_is_refused_and_not_kept_in_memory(me: Files, path: str) -> None:
    before = me.portal.memory_bytes()
    block = b"%x\r\n%s\r\n" % (2**20, b"1" * 2**20)

    with connect(me.portal) as sock:
        sock.sendall(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {me.value}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        for _ in range(150):
            sock.sendall(block)
        status, kind, body = answer_of(sock)

    assert status == 400
    checked(400, kind, body, path)
    assert me.portal.memory_bytes() - before < 100 * 2**20


@pytest.mark.parametrize(
    ("path", "megabytes", "status"), [(CREATE, 9, 400), (CREATE, 7, 400), (QUERY, 17, 400)]
)
def test_a_body_just_too_large_is_answered_though_it_is_sent_whole(
    me: Files, path: str, megabytes: int, status: int
) -> None:
    answer = ask(me, "POST", path, data=b'{"name": "%s"}' % (b"x" * megabytes * 2**20))

    assert answer.status_code == status
    is_too_large = "larger than" in answer.json()["message"]
    assert is_too_large == (megabytes != 7)


def test_the_worst_body_that_may_come_is_answered_in_time(me: Files) -> None:
    for body in (b"[" + b"[]," * (2 * 2**20) + b"1]", b'{"x":[' + b"0," * (3 * 2**20) + b"0]}"):
        assert ask(me, "POST", CREATE, data=body).status_code == 400


# ---------------------------------------------------------------- odd HTTP


def test_web_sockets_are_refused(live_portal: LivePortal) -> None:
    for path in ("/", CREATE, QUERY, f"{FILE}/a"):
        with connect(live_portal) as sock:
            sock.sendall(
                f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n\r\n".encode()
            )
            assert answer_of(sock)[0] in {302, 400, 401, 403, 404}


def test_odd_headers_do_no_harm(me: Files) -> None:
    for headers in (
        *({"X-Request-Id": "a" * 5000}, {"X-Request-Id": "é\u00ff".encode()}),
        *({"Accept": "text/html"}, {"Accept": "x"}, {"Content-Type": "\u00ff".encode()}),
        *(
            {"Content-Encoding": "gzip"},
            {"X-Forwarded-Host": "a b, <x>"},
            {"Cookie": "sessionid=x"},
        ),
        {"X-Forwarded-Proto": "gopher"},
    ):
        for method, path in (
            ("POST", CREATE),
            ("POST", QUERY),
            ("GET", CREATE),
            ("GET", f"{FILE}/n"),
        ):
            answer = ask(me, method, path, headers=headers)
            if answer.status_code != 200:
                assert len(answer.json()["request_id"]) <= 64


def test_a_conditional_download_of_a_changed_file_is_the_one_412(me: Files) -> None:
    assert me.file("PUT", "/Volumes/main/default/shape/c?overwrite=true", data=b"1").ok

    answer = me(
        "GET", f"{FILE}/c", headers={"If-Unmodified-Since": "Mon, 01 Jan 2001 00:00:00 GMT"}
    )

    assert answer.status_code == 412
    assert set(json.loads(answer.content)) == {"error_code", "message", "details", "request_id"}
