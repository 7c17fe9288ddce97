"""The bytes of files over a live server: streamed, whole or not at all, at their own speed."""

from __future__ import annotations

import hashlib
import http.client
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support.live_portal import Files, LivePortal

MIB = 2**20
VOLUME = "/Volumes/main/default/data"


@pytest.fixture(scope="module")
def portal(live_portal: LivePortal) -> LivePortal:
    return live_portal


@pytest.fixture(scope="module")
def me(portal: LivePortal) -> Files:
    return Files(portal, portal.token("me"))


@pytest.fixture(scope="module")
def other(portal: LivePortal) -> Files:
    return Files(portal, portal.token("other"))


def chunks(total: int) -> Iterator[bytes]:
    block = os.urandom(MIB)
    for _ in range(total // MIB):
        yield block


def error(response: requests.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error_code"]


# ---------------------------------------------------------------- up and down


def test_a_small_file_goes_up_and_comes_down(me: Files) -> None:
    up = me.file("PUT", f"{VOLUME}/a.bin?overwrite=true", data=b"hello")
    down = me.file("GET", f"{VOLUME}/a.bin")
    head = me.file("HEAD", f"{VOLUME}/a.bin")

    assert (up.status_code, up.content) == (204, b"")
    assert (down.status_code, down.content) == (200, b"hello")
    assert down.headers["Accept-Ranges"] == "bytes"
    assert "Content-Encoding" not in down.headers
    assert down.headers["x-databricks-org-id"].isdigit()
    for header in ("Content-Length", "Last-Modified", "Content-Type"):
        assert head.headers[header] == down.headers[header]
    assert head.content == b""


def test_an_empty_file_is_a_file(me: Files) -> None:
    assert me.file("PUT", f"{VOLUME}/empty", data=b"").status_code == 204
    assert me.file("GET", f"{VOLUME}/empty").content == b""
    assert me.file("HEAD", f"{VOLUME}/empty").headers["Content-Length"] == "0"


def test_a_large_file_costs_no_memory_in_any_direction(portal: LivePortal, me: Files) -> None:
    me.file("PUT", f"{VOLUME}/warm-up", data=b"x")
    before = portal.memory_bytes()
    size = 200 * MIB

    class Body:
        def __len__(self) -> int:
            return size

        def __iter__(self) -> Iterator[bytes]:
            return chunks(size)

    up = me.file("PUT", f"{VOLUME}/large", data=Body())
    assert up.status_code == 204
    received = 0
    with me.file("GET", f"{VOLUME}/large", stream=True) as down:
        for block in down.iter_content(MIB):
            received += len(block)

    assert received == size
    # Half of the file: what else the process imports meanwhile is far less.
    assert portal.memory_bytes("VmHWM") - before < size // 2


def test_a_chunked_body_is_taken(me: Files) -> None:
    up = me.file("PUT", f"{VOLUME}/chunked?overwrite=true", data=chunks(3 * MIB))

    assert up.status_code == 204
    assert me.file("HEAD", f"{VOLUME}/chunked").headers["Content-Length"] == str(3 * MIB)


def test_a_file_is_replaced_only_when_asked(me: Files) -> None:
    me.file("PUT", f"{VOLUME}/kept?overwrite=true", data=b"first")

    assert error(me.file("PUT", f"{VOLUME}/kept", data=b"second" * MIB)) == (409, "ALREADY_EXISTS")
    assert me.file("GET", f"{VOLUME}/kept").content == b"first"
    assert me.file("PUT", f"{VOLUME}/kept?overwrite=true", data=b"third").status_code == 204
    assert me.file("GET", f"{VOLUME}/kept").content == b"third"


def test_a_broken_upload_leaves_nothing(portal: LivePortal, me: Files) -> None:
    with socket.create_connection(("127.0.0.1", portal.port)) as raw:
        raw.sendall(
            f"PUT /api/2.0/fs/files{VOLUME}/broken HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {me.value}\r\nContent-Length: {10 * MIB}\r\n\r\n".encode()
        )
        raw.sendall(b"x" * 2 * MIB)
        uploads = portal.data / "uploads"
        wait_for(lambda: any(uploads.glob("put-*")))
        assert me.file("HEAD", f"{VOLUME}/broken").status_code == 404

    wait_for(lambda: not any(uploads.glob("put-*")))
    assert me.file("HEAD", f"{VOLUME}/broken").status_code == 404


def test_many_uploads_run_at_once(me: Files) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def up(n: int) -> bytes:
        content = os.urandom(MIB)
        requests.put(
            f"{me.portal.url}/api/2.0/fs/files{VOLUME}/many/{n}",
            data=content,
            headers={"Authorization": f"Bearer {me.value}"},
            timeout=60,
        ).raise_for_status()
        return hashlib.sha256(content).digest()

    with ThreadPoolExecutor(32) as pool:
        digests = list(pool.map(up, range(40)))

    for n, digest in enumerate(digests):
        assert hashlib.sha256(me.file("GET", f"{VOLUME}/many/{n}").content).digest() == digest


# ---------------------------------------------------------------- ranges and conditions


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ("bytes=2-4", 206, b"234"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-2", 206, b"89"),
        ("bytes=5-100", 206, b"56789"),
        ("bytes=0-0", 206, b"0"),
        ("bytes=1-2,4-5", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
        ("bytes=5-2", 200, b"0123456789"),
    ],
)
def test_ranges(me: Files, asked: str, status: int, content: bytes) -> None:
    me.file("PUT", f"{VOLUME}/digits?overwrite=true", data=b"0123456789")

    down = me.file("GET", f"{VOLUME}/digits", headers={"Range": asked})

    assert (down.status_code, down.content) == (status, content)
    if status == 206:
        assert down.headers["Content-Range"].endswith("/10")


def test_a_range_behind_the_end_is_a_400(me: Files) -> None:
    me.file("PUT", f"{VOLUME}/digits?overwrite=true", data=b"0123456789")

    found = me.file("GET", f"{VOLUME}/digits", headers={"Range": "bytes=10-"})

    assert error(found) == (400, "INVALID_PARAMETER_VALUE")


def test_a_download_goes_on_only_with_the_same_file(me: Files) -> None:
    me.file("PUT", f"{VOLUME}/digits?overwrite=true", data=b"0123456789")
    modified = me.file("HEAD", f"{VOLUME}/digits").headers["Last-Modified"]

    same = me.file(
        "GET", f"{VOLUME}/digits", headers={"Range": "bytes=5-", "If-Unmodified-Since": modified}
    )
    old = {"If-Unmodified-Since": "Mon, 01 Jan 2001 00:00:00 GMT"}
    changed = me.file("GET", f"{VOLUME}/digits", headers=old)

    assert (same.status_code, same.content) == (206, b"56789")
    assert changed.status_code == 412


# ---------------------------------------------------------------- who and where


def test_without_a_token_nothing_is_said(portal: LivePortal) -> None:
    for method in ("GET", "PUT", "POST", "DELETE"):
        found = requests.request(
            method, f"{portal.url}/api/2.0/fs/files{VOLUME}/a.bin", data=b"x", timeout=30
        )
        assert error(found) == (401, "UNAUTHENTICATED"), method


def test_a_revoked_token_stops_within_two_seconds(portal: LivePortal) -> None:
    leaver = Files(portal, portal.token("leaver"))
    assert leaver.file("PUT", f"{VOLUME}/left", data=b"x").status_code == 204
    code = "from portal.accounts.models import *; PersonalAccessToken.objects.filter("
    code += "user__username='leaver').update(revoked_at='2020-01-01T00:00Z')"
    portal.manage("shell", "-v", "0", "-c", code)
    time.sleep(1.2)

    assert leaver.file("GET", f"{VOLUME}/left").status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/Volumes/main/default/data/../../../../secret_key",
        "/Volumes/main/default/data/%2e%2e/%2e%2e/x",
        "/Volumes/main/default/data/..%2f..%2fx",
        "/Volumes/main/default/data/a%00b",
        "/Volumes/main/default/data/a%0Ab",
        "/Volumes/main/default/data//b",
        "/Volumes/main/default/data/./b",
        "/Volumes/main/default/data/%ff",
        "/Volumes/main",
        "/etc/passwd",
        "//etc/passwd",
        "/Models/main/default/m",
        "/Models/main/default/m/x/file",
        "/Models/main/default/m/../file",
        "/Models/main/de%20fault/m/1/file",
        "/Volumes/main/default/data/" + "x" * 256,
        "/Volumes/main/default/data/" + "x/" * 2000 + "x",
    ],
)
def test_paths_that_leave_or_are_odd_are_a_400(portal: LivePortal, me: Files, path: str) -> None:
    for method in ("GET", "PUT"):
        connection = http.client.HTTPConnection("127.0.0.1", portal.port, timeout=30)
        connection.request(
            method,
            f"/api/2.0/fs/files{path}",
            body=b"x" if method == "PUT" else None,
            headers={"Authorization": f"Bearer {me.value}"},
        )
        assert connection.getresponse().status == 400, method
        connection.close()


def test_a_link_on_the_disk_is_not_followed(portal: LivePortal, me: Files) -> None:
    me.file("PUT", f"{VOLUME}/plain?overwrite=true", data=b"x")
    folder = portal.data / "files" / "Volumes" / "main" / "default" / "data"
    (folder / "out").symlink_to(portal.data)
    (folder / "key").symlink_to(portal.data / "db.sqlite3")

    assert me.file("GET", f"{VOLUME}/key").status_code == 404
    assert me.file("GET", f"{VOLUME}/out/db.sqlite3").status_code == 404
    assert me.file("PUT", f"{VOLUME}/out/new", data=b"x").status_code == 404
    assert not (portal.data / "new").exists()
    (folder / "out").unlink()
    (folder / "key").unlink()


def test_names_are_decoded_once_and_keep_their_case(me: Files) -> None:
    for encoded, name in (("a%20b%25c%23%2B", "a b%c#+"), ("%C3%A4%E2%82%AC", "ä€"), ("Aa", "Aa")):
        assert (
            me.file("PUT", f"{VOLUME}/odd/{encoded}?overwrite=true", data=b"x").status_code == 204
        )
        listing = me("GET", f"/api/2.0/fs/directories{VOLUME}/odd").json()["contents"]
        assert f"{VOLUME}/odd/{name}" in [entry["path"] for entry in listing]


# ---------------------------------------------------------------- model versions


def test_a_versions_files_are_written_by_its_people_until_it_is_ready(
    me: Files, other: Files
) -> None:
    folder = me.new_version("main.default.frozen")

    assert error(other.file("PUT", f"{folder}/MLmodel", data=b"x")) == (403, "PERMISSION_DENIED")
    assert me.file("PUT", f"{folder}/MLmodel", data=b"flavors: {x: {}}\n").status_code == 204
    assert other.file("GET", f"{folder}/MLmodel").status_code == 200
    me.registry("POST", "model-versions/finalize", name="main.default.frozen", version="1")

    assert error(me.file("PUT", f"{folder}/more", data=b"x")) == (400, "INVALID_STATE")
    changed = me.file("PUT", f"{folder}/MLmodel?overwrite=true", data=b"x")
    assert error(changed) == (400, "INVALID_STATE")
    assert error(me.file("DELETE", f"{folder}/MLmodel")) == (400, "INVALID_STATE")
    begun = me.file("POST", f"{folder}/big?action=initiate-upload")
    assert error(begun) == (400, "INVALID_STATE")


def test_a_version_that_does_not_exist_has_no_files(me: Files) -> None:
    path = "/Models/main/default/nothing/1/MLmodel"

    assert error(me.file("PUT", path, data=b"x")) == (404, "NOT_FOUND")
    assert error(me.file("GET", path)) == (404, "NOT_FOUND")


def test_an_upload_that_ends_after_finalize_does_not_appear(portal: LivePortal, me: Files) -> None:
    folder = me.new_version("main.default.race")
    me.file("PUT", f"{folder}/MLmodel", data=b"flavors: {x: {}}\n")
    connection = http.client.HTTPConnection("127.0.0.1", portal.port, timeout=30)
    connection.putrequest("PUT", f"/api/2.0/fs/files{folder}/late")
    connection.putheader("Authorization", f"Bearer {me.value}")
    connection.putheader("Content-Length", str(2 * MIB))
    connection.endheaders()
    connection.send(b"x" * MIB)
    wait_for(lambda: any((portal.data / "uploads").glob("put-*")))

    me.registry("POST", "model-versions/finalize", name="main.default.race", version="1")
    connection.send(b"x" * MIB)

    assert connection.getresponse().status == 400
    connection.close()
    assert me.file("HEAD", f"{folder}/late").status_code == 404


def test_two_uploads_of_one_file_at_once_leave_one_of_them_whole(me: Files) -> None:
    from concurrent.futures import ThreadPoolExecutor

    folder = me.new_version("main.default.twice")

    def up(letter: bytes) -> int:
        return requests.put(
            f"{me.portal.url}/api/2.0/fs/files{folder}/weights?overwrite=true",
            data=letter * (8 * MIB),
            headers={"Authorization": f"Bearer {me.value}"},
            timeout=60,
        ).status_code

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(up, [b"a", b"b", b"c", b"d"])) == {204}

    content = me.file("GET", f"{folder}/weights").content
    assert len(content) == 8 * MIB
    assert len(set(content)) == 1


def wait_for(condition: object, limit_s: float = 20) -> None:
    assert callable(condition)
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_nothing_is_left_of_uploads(portal: LivePortal, me: Files) -> None:
    wait_for(lambda: not list(Path(portal.data / "uploads").glob("put-*")))
