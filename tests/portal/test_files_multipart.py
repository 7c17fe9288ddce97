"""Multipart uploads, signed links, directories: over a live server, also with databricks-sdk."""

from __future__ import annotations

import io
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from tests.support.live_portal import Files, LivePortal

MIB = 2**20
VOLUME = "/Volumes/main/default/parts"


@pytest.fixture(scope="module")
def me(live_portal: LivePortal) -> Files:
    return Files(live_portal, live_portal.token("me"))


@pytest.fixture(scope="module")
def other(live_portal: LivePortal) -> Files:
    return Files(live_portal, live_portal.token("other"))


class Upload:
    """A multipart upload by hand."""

    def __init__(self, me: Files, path: str, *, overwrite: bool = True) -> None:
        self.me, self.path = me, path
        query = f"?action=initiate-upload&overwrite={str(overwrite).lower()}"
        begun = me.file("POST", path + query)
        assert begun.status_code == 200, begun.text
        self.token = begun.json()["multipart_upload"]["session_token"]
        self.etags: dict[int, str] = {}

    def url(self, number: int, **more: Any) -> str:
        asked = {"path": self.path, "session_token": self.token, "start_part_number": number}
        answer = self.me(
            "POST", "/api/2.0/fs/create-upload-part-urls", json=asked | {"count": 1} | more
        )
        assert answer.status_code == 200, answer.text
        (part,) = answer.json()["upload_part_urls"]
        assert part["part_number"] == number
        return str(part["url"])

    def put(self, number: int, content: bytes) -> requests.Response:
        done = requests.put(self.url(number), data=content, timeout=60)
        if done.status_code == 200:
            self.etags[number] = done.headers["ETag"]
        return done

    def end(self, action: str = "complete-upload", **etags: str) -> requests.Response:
        parts = [
            {"part_number": n, "etag": etags.get(f"p{n}", tag)}
            for n, tag in sorted(self.etags.items())
        ]
        query = f"?action={action}&upload_type=multipart&session_token={self.token}"
        return self.me.file("POST", self.path + query, json={"parts": parts})


def error(response: requests.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error_code"]


def test_parts_may_arrive_in_any_order_and_at_once(live_portal: LivePortal, me: Files) -> None:
    parts = [os.urandom(2 * MIB) for _ in range(9)] + [b"the end"]
    upload = Upload(me, f"{VOLUME}/any-order")
    assert upload.put(1, parts[0]).status_code == 200
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda n: upload.put(n, parts[n - 1]), [10, 3, 7, 2, 9, 4, 8, 5, 6]))

    assert {response.status_code for response in done} == {200}
    assert me.file("HEAD", f"{VOLUME}/any-order").status_code == 404
    assert upload.end().json() == {}
    assert me.file("GET", f"{VOLUME}/any-order").content == b"".join(parts)
    assert not (live_portal.data / "uploads" / upload.token).exists()


def test_even_part_one_may_come_last_and_sizes_may_differ(me: Files) -> None:
    parts = [os.urandom(size) for size in (3000, 5000, 10, 7000)]
    upload = Upload(me, f"{VOLUME}/odd-sizes")
    for number in (4, 2, 1, 3):
        assert upload.put(number, parts[number - 1]).status_code == 200

    assert upload.end().status_code == 200
    assert me.file("GET", f"{VOLUME}/odd-sizes").content == b"".join(parts)


def test_a_part_may_be_sent_again(me: Files) -> None:
    upload = Upload(me, f"{VOLUME}/again")
    upload.put(1, b"a" * 1000)
    upload.put(2, b"b" * 10)
    upload.put(1, b"c" * 1000)

    assert upload.end().status_code == 200
    assert me.file("GET", f"{VOLUME}/again").content == b"c" * 1000 + b"b" * 10


def test_completing_twice_changes_nothing(me: Files) -> None:
    upload = Upload(me, f"{VOLUME}/twice")
    upload.put(1, b"x" * 1000)
    with ThreadPoolExecutor(4) as pool:
        statuses = set(pool.map(lambda _: upload.end().status_code, range(4)))

    assert statuses <= {200, 503}
    assert upload.end().status_code == 200
    assert me.file("GET", f"{VOLUME}/twice").content == b"x" * 1000


def test_a_missing_part_or_another_etag_is_refused(me: Files) -> None:
    upload = Upload(me, f"{VOLUME}/wrong")
    upload.put(1, b"x")
    assert error(upload.end(p1="0123")) == (400, "INVALID_PARAMETER_VALUE")
    upload.etags[2] = upload.etags[1]
    assert error(upload.end()) == (400, "INVALID_PARAMETER_VALUE")
    del upload.etags[2]
    assert me.file("HEAD", f"{VOLUME}/wrong").status_code == 404

    assert upload.end().status_code == 200


def test_parts_must_begin_with_one(me: Files) -> None:
    upload = Upload(me, f"{VOLUME}/gap")
    upload.put(2, b"x")

    assert error(upload.end()) == (400, "INVALID_PARAMETER_VALUE")


def test_an_aborted_upload_is_gone(live_portal: LivePortal, me: Files) -> None:
    upload = Upload(me, f"{VOLUME}/aborted")
    url = upload.url(2)
    upload.put(1, b"x")
    assert upload.end("abort-upload").status_code == 200

    assert not (live_portal.data / "uploads" / upload.token).exists()
    assert error(requests.put(url, data=b"x", timeout=30)) == (404, "NOT_FOUND")
    assert error(upload.end()) == (404, "NOT_FOUND")


def test_nothing_is_written_after_completion(me: Files) -> None:
    upload = Upload(me, f"{VOLUME}/closed")
    url = upload.url(1)
    upload.put(1, b"first")
    upload.end()

    assert requests.put(url, data=b"later", timeout=30).status_code == 404
    assert me.file("GET", f"{VOLUME}/closed").content == b"first"


def test_a_file_that_is_there_is_not_overwritten_unless_asked(me: Files) -> None:
    me.file("PUT", f"{VOLUME}/there?overwrite=true", data=b"x")
    begun = me.file("POST", f"{VOLUME}/there?action=initiate-upload&overwrite=false")
    assert error(begun) == (409, "ALREADY_EXISTS")

    upload = Upload(me, f"{VOLUME}/appears", overwrite=False)
    upload.put(1, b"slow")
    me.file("PUT", f"{VOLUME}/appears", data=b"quick")
    assert error(upload.end()) == (409, "ALREADY_EXISTS")
    assert me.file("GET", f"{VOLUME}/appears").content == b"quick"


def test_a_session_is_its_users_own(me: Files, other: Files) -> None:
    upload = Upload(me, f"{VOLUME}/mine")
    upload.put(1, b"x")
    stranger = Upload(other, f"{VOLUME}/theirs")
    stranger.token = upload.token

    asked = {"path": upload.path, "session_token": upload.token, "start_part_number": 1}
    urls = other("POST", "/api/2.0/fs/create-upload-part-urls", json=asked)
    assert error(urls) == (404, "NOT_FOUND")
    assert error(stranger.end()) == (404, "NOT_FOUND")


def test_versions_finalized_meanwhile_take_no_multipart_file(me: Files) -> None:
    folder = me.new_version("main.default.multipart_race")
    me.file("PUT", f"{folder}/MLmodel", data=b"flavors: {x: {}}\n")
    upload = Upload(me, f"{folder}/weights")
    upload.put(1, b"x")
    me.registry("POST", "model-versions/finalize", name="main.default.multipart_race", version="1")

    assert error(upload.end()) == (400, "INVALID_STATE")
    assert me.file("HEAD", f"{folder}/weights").status_code == 404


# ---------------------------------------------------------------- signed links


def test_an_expired_link_is_a_403_that_clients_know(me: Files) -> None:
    upload = Upload(me, f"{VOLUME}/expired")
    old = requests.put(
        upload.url(1, expire_time="2020-01-01T00:00:00Z"), data=b"x" * MIB, timeout=30
    )

    assert old.status_code == 403
    assert "<Code>AccessDenied</Code><Message>Request has expired</Message>" in old.text


def test_a_changed_link_is_refused(me: Files) -> None:
    upload = Upload(me, f"{VOLUME}/changed")
    url = upload.url(1)
    head, _, last = url.rpartition("/")
    for changed in (url[:-1], f"{head}/x{last}", f"{head}/", f"{head}/a:b:c"):
        assert requests.put(changed, data=b"x", timeout=30).status_code == 403, changed


def test_links_are_for_their_own_method(me: Files) -> None:
    upload = Upload(me, f"{VOLUME}/method")
    for method in ("GET", "POST", "DELETE"):
        found = requests.request(method, upload.url(1), timeout=30)
        assert error(found) == (404, "ENDPOINT_NOT_FOUND")


def test_the_one_put_way_and_both_ways_to_ask_for_a_download(me: Files) -> None:
    path = f"{VOLUME}/one put/ä.bin"
    link = me("POST", "/api/2.0/fs/create-upload-url", json={"path": path}).json()
    assert link["headers"] == []
    assert requests.put(link["url"], data=b"content", timeout=30).ok

    with_body = me("POST", "/api/2.0/fs/create-download-url", json={"path": path})
    with_query = me("POST", "/api/2.0/fs/create-download-url", params={"path": path})
    for answer in (with_body, with_query):
        down = requests.get(answer.json()["url"], headers={"Range": "bytes=3-"}, timeout=30)
        assert (down.status_code, down.content) == (206, b"tent")


def test_links_are_built_from_the_public_address(me: Files) -> None:
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "shoal.example.com"}
    me.file("PUT", f"{VOLUME}/public?overwrite=true", data=b"x")
    asked = {"path": f"{VOLUME}/public"}
    answer = me("POST", "/api/2.0/fs/create-download-url", json=asked, headers=headers)

    assert answer.json()["url"].startswith("https://shoal.example.com/api/2.0/fs/transfer/")


def test_a_link_to_a_missing_file_is_a_404(me: Files) -> None:
    asked = {"path": f"{VOLUME}/none"}

    found = me("POST", "/api/2.0/fs/create-download-url", json=asked)

    assert error(found) == (404, "NOT_FOUND")


# ---------------------------------------------------------------- directories


def directory(me: Files, method: str, path: str, **options: Any) -> requests.Response:
    return me(method, f"/api/2.0/fs/directories{path}", **options)


def test_directories_are_made_listed_and_deleted(me: Files) -> None:
    base = f"{VOLUME}/tree"
    for _ in range(2):
        assert directory(me, "PUT", f"{base}/sub").status_code == 204
    me.file("PUT", f"{base}/a.bin", data=b"12345")

    listing = directory(me, "GET", f"{base}/").json()["contents"]
    assert [(e["path"], e["name"], e["is_directory"], e["file_size"]) for e in listing] == [
        (f"{base}/a.bin", "a.bin", False, 5),
        (f"{base}/sub", "sub", True, 0),
    ]
    assert abs(listing[0]["last_modified"] - time.time() * 1000) < 60_000
    assert directory(me, "HEAD", base).status_code == 200
    assert error(directory(me, "DELETE", base)) == (400, "INVALID_PARAMETER_VALUE")
    assert directory(me, "DELETE", f"{base}/sub").status_code == 204
    assert me.file("DELETE", f"{base}/a.bin").status_code == 204
    assert directory(me, "DELETE", base).status_code == 204
    assert directory(me, "HEAD", base).status_code == 404


def test_a_file_is_no_directory_and_a_directory_no_file(me: Files) -> None:
    me.file("PUT", f"{VOLUME}/file?overwrite=true", data=b"x")
    directory(me, "PUT", f"{VOLUME}/folder")

    assert directory(me, "HEAD", f"{VOLUME}/file").status_code == 404
    assert error(directory(me, "GET", f"{VOLUME}/file")) == (404, "NOT_FOUND")
    assert error(directory(me, "GET", f"{VOLUME}/none")) == (404, "NOT_FOUND")
    assert error(directory(me, "DELETE", f"{VOLUME}/none")) == (404, "NOT_FOUND")
    assert error(me.file("GET", f"{VOLUME}/folder")) == (404, "NOT_FOUND")
    assert error(me.file("DELETE", f"{VOLUME}/none")) == (404, "NOT_FOUND")
    assert error(directory(me, "PUT", f"{VOLUME}/file")) == (409, "ALREADY_EXISTS")
    assert me.file("PUT", f"{VOLUME}/folder?overwrite=true", data=b"x").status_code == 400
    assert me.file("PUT", f"{VOLUME}/file/below", data=b"x").status_code == 400


def test_listings_are_paged(me: Files) -> None:
    for n in range(5):
        me.file("PUT", f"{VOLUME}/pages/{n}?overwrite=true", data=b"x")
    names, token = [], ""
    for _ in range(3):
        page = directory(
            me, "GET", f"{VOLUME}/pages", params={"page_size": 2, "page_token": token}
        ).json()
        names += [entry["name"] for entry in page["contents"]]
        token = page.get("next_page_token", "")

    assert names == ["0", "1", "2", "3", "4"]
    assert token == ""


def test_a_versions_folder_exists_once_a_file_does(me: Files) -> None:
    folder = me.new_version("main.default.folder")
    assert directory(me, "HEAD", folder).status_code == 404
    me.file("PUT", f"{folder}/deep/er/file", data=b"x")

    assert directory(me, "HEAD", f"{folder}/deep").status_code == 200
    assert [e["name"] for e in directory(me, "GET", folder).json()["contents"]] == ["deep"]


# ---------------------------------------------------------------- the unmodified client


def test_databricks_sdk_uploads_in_parts_and_downloads_in_ranges(
    live_portal: LivePortal, me: Files, tmp_path: Any
) -> None:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk import errors as sdk_errors

    content = os.urandom(MIB) * 56
    path = f"{VOLUME}/sdk/big ä%.bin"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client's own
        client = WorkspaceClient(host=live_portal.url, token=me.value)
        client.files.upload(path, io.BytesIO(content), overwrite=True)
        client.files.download_to(path, str(tmp_path / "down"), use_parallel=True, parallelism=4)
        with pytest.raises(sdk_errors.AlreadyExists):
            client.files.upload(path, io.BytesIO(content), overwrite=False)
        with pytest.raises(sdk_errors.NotFound):
            client.files.get_metadata(f"{path}.none")
        names = [entry.path for entry in client.files.list_directory_contents(f"{VOLUME}/sdk")]

    assert (tmp_path / "down").read_bytes() == content
    assert names == [path]
