"""Many clients at once against two live web processes: one wins, the others hear why, none a 500.

On SQLite writes wait for each other; on PostgreSQL they really meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from tests.support.live_portal import Files, LivePortal

AT_ONCE = 8
MODEL = "main.races.model"
MODELS = "/api/2.0/mlflow/unity-catalog"
ENDPOINTS = "/api/2.0/serving-endpoints"
MLMODEL = b"flavors: {python_function: {python_version: 3.11.1, loader_module: x}}\n"


class Crowd:
    """The same user at two web processes."""

    def __init__(self, portal: LivePortal, urls: list[str]) -> None:
        self.token = portal.token("me", is_admin=True)
        self.urls = urls

    def __call__(self, call: Callable[[int], tuple[str, str, object]]) -> list[requests.Response]:
        """Method, path and body for each number; all sent at once."""

        def send(number: int) -> requests.Response:
            method, path, body = call(number)
            return requests.request(
                method,
                self.urls[number % len(self.urls)] + path,
                headers={"Authorization": f"Bearer {self.token}"},
                json=body,
                timeout=60,
            )

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(send, range(AT_ONCE)))


def outcomes(answers: list[requests.Response]) -> Counter[object]:
    return Counter(200 if answer.ok else answer.json()["error_code"] for answer in answers)


@pytest.fixture(scope="module")
def crowd(live_portal: LivePortal) -> Iterator[Crowd]:
    second, process = live_portal.start_web()
    yield Crowd(live_portal, [live_portal.url, second])
    live_portal.kill(process)


@pytest.fixture(scope="module")
def version(live_portal: LivePortal, crowd: Crowd) -> str:
    """A READY version, registered once."""
    me = Files(live_portal, crowd.token)
    folder = me.new_version(MODEL)
    assert me.file("PUT", f"{folder}/MLmodel", data=MLMODEL).status_code == 204
    number = folder.rpartition("/")[2]
    me.registry("POST", "model-versions/finalize", name=MODEL, version=number)
    return number


def test_a_model_is_registered_once(crowd: Crowd) -> None:
    body = {"name": "main.races.once", "tags": [{"key": "k", "value": "v"}]}
    answers = crowd(lambda _: ("POST", f"{MODELS}/registered-models/create", body))

    assert outcomes(answers) == {200: 1, "RESOURCE_ALREADY_EXISTS": AT_ONCE - 1}


def test_versions_get_numbers_of_their_own(crowd: Crowd, version: str) -> None:
    body = {"name": MODEL, "source": "s"}
    answers = crowd(lambda _: ("POST", f"{MODELS}/model-versions/create", body))

    assert outcomes(answers) == {200: AT_ONCE}
    assert len({answer.json()["model_version"]["version"] for answer in answers}) == AT_ONCE


def test_a_version_is_finalized_by_one_and_ready_for_all(
    live_portal: LivePortal, crowd: Crowd
) -> None:
    me = Files(live_portal, crowd.token)
    folder = me.new_version("main.races.finalized")
    me.file("PUT", f"{folder}/MLmodel", data=MLMODEL)
    body = {"name": "main.races.finalized", "version": folder.rpartition("/")[2]}
    answers = crowd(lambda _: ("POST", f"{MODELS}/model-versions/finalize", body))

    assert outcomes(answers) == {200: AT_ONCE}
    assert {answer.json()["model_version"]["status"] for answer in answers} == {"READY"}


def test_tags_and_aliases_meet_without_a_fault(crowd: Crowd, version: str) -> None:
    of_it = {"name": MODEL}
    tags = crowd(
        lambda n: (
            "POST",
            f"{MODELS}/registered-models/set-tag",
            of_it | {"key": "k", "value": str(n)},
        )
    )
    aliases = crowd(
        lambda n: (
            "POST",
            f"{MODELS}/registered-models/alias",
            of_it | {"alias": "champion", "version": version},
        )
    )

    assert outcomes(tags) == outcomes(aliases) == {200: AT_ONCE}


def test_an_endpoint_is_created_once_and_updated_by_one_at_a_time(
    live_portal: LivePortal, crowd: Crowd, version: str
) -> None:
    entity = {
        "name": "current",
        "entity_name": MODEL,
        "entity_version": version,
        "workload_size": "Small",
        "scale_to_zero_enabled": False,
    }
    wanted = {"name": "raced", "config": {"served_entities": [entity]}}

    created = crowd(lambda _: ("POST", ENDPOINTS, wanted))
    updated = crowd(lambda _: ("PUT", f"{ENDPOINTS}/raced/config", wanted["config"]))
    keys = [{"key": f"k{n}", "value": "v"} for n in range(6)]
    tagged = crowd(
        lambda n: ("PATCH", f"{ENDPOINTS}/raced/tags", {"add_tags": keys[:: 1 if n % 2 else -1]})
    )
    endpoint_id = next(answer for answer in created if answer.ok).json()["id"]
    live_portal.token("other")
    principals = ({"group_name": "users"}, {"user_name": "other"})
    granted = crowd(
        lambda n: (
            "PUT",
            f"/api/2.0/permissions/serving-endpoints/{endpoint_id}",
            {"access_control_list": [principals[n % 2] | {"permission_level": "CAN_QUERY"}]},
        )
    )
    left = crowd(lambda _: ("GET", f"/api/2.0/permissions/serving-endpoints/{endpoint_id}", None))
    deleted = crowd(lambda _: ("DELETE", f"{ENDPOINTS}/raced", {}))

    assert outcomes(created) == {200: 1, "RESOURCE_ALREADY_EXISTS": AT_ONCE - 1}
    assert outcomes(updated) == {"RESOURCE_CONFLICT": AT_ONCE}  # the first deployment still waits
    assert outcomes(tagged) == {200: AT_ONCE}
    assert outcomes(granted) == {200: AT_ONCE}
    levels = [
        level["permission_level"]
        for entry in left[0].json()["access_control_list"]
        for level in entry["all_permissions"]
    ]
    assert levels.count("CAN_QUERY") == 1  # replaced, not mixed
    assert set(outcomes(deleted)) <= {200, "RESOURCE_DOES_NOT_EXIST"}
    assert outcomes(deleted)[200] >= 1


def test_two_multipart_uploads_of_one_file_leave_one_of_them_whole(
    live_portal: LivePortal, crowd: Crowd
) -> None:
    me = Files(live_portal, crowd.token)
    folder = me.new_version("main.races.uploaded")
    path = f"{folder}/weights"
    size = 2**20

    def upload(number: int) -> int:
        begun = me.file("POST", f"{path}?action=initiate-upload&overwrite=true").json()
        session = begun["multipart_upload"]["session_token"]
        parts = []
        for part in (1, 2, 3):
            asked = {
                "path": path,
                "session_token": session,
                "start_part_number": part,
                "count": 1,
                "expire_time": "2099-01-01T00:00:00Z",
            }
            links = me("POST", "/api/2.0/fs/create-upload-part-urls", json=asked).json()
            url = links["upload_part_urls"][0]["url"]
            sent = requests.put(url, data=bytes([number]) * size, timeout=60)
            parts.append({"part_number": part, "etag": sent.headers["ETag"]})
        query = f"action=complete-upload&upload_type=multipart&session_token={session}"
        return me.file("POST", f"{path}?{query}", json={"parts": parts}).status_code

    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(upload, range(4)))
    content = me.file("GET", path).content

    assert set(statuses) <= {200, 204}
    assert len(content) == 3 * size
    assert len(set(content)) == 1
