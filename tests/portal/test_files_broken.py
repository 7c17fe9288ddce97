"""An upload that breaks off leaves no version that can be deployed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from tests.support.live_portal import Files, LivePortal

MIB = 2**20
MLMODEL = b"flavors: {python_function: {python_version: 3.11.1, loader_module: x}}\n"
ENDPOINTS = "/api/2.0/serving-endpoints"
Break = Callable[[Files, str], None]


@pytest.fixture(scope="module")
def me(live_portal: LivePortal) -> Files:
    live_portal.manage("preview", "throughput_optimized", "on")
    return Files(live_portal, live_portal.token("me", is_admin=True))


def break_off(me: Files, path: str) -> None:
    """Announce ten mebibytes, send two, hang up."""
    with socket.create_connection(("127.0.0.1", me.portal.port)) as raw:
        raw.sendall(
            f"PUT /api/2.0/fs/files{path} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {me.value}\r\nContent-Length: {10 * MIB}\r\n\r\n".encode()
        )
        raw.sendall(b"x" * 2 * MIB)
        time.sleep(0.2)


def begin_parts(me: Files, path: str) -> None:
    """Open a multipart upload, send its first part and never complete it."""
    begun = me.file("POST", f"{path}?action=initiate-upload&overwrite=true").json()
    asked = {
        "path": path,
        "session_token": begun["multipart_upload"]["session_token"],
        "start_part_number": 1,
        "count": 1,
        "expire_time": "2099-01-01T00:00:00Z",
    }
    links = me("POST", "/api/2.0/fs/create-upload-part-urls", json=asked).json()
    sent = me.session.put(links["upload_part_urls"][0]["url"], data=b"x" * MIB, timeout=60)
    assert sent.status_code == 200


def refusal(me: Files, name: str, version: str, **entity: object) -> tuple[int, str]:
    wanted = {
        "entity_name": name,
        "entity_version": version,
        "workload_size": "Small",
        "scale_to_zero_enabled": False,
        **entity,
    }
    answer = me("POST", ENDPOINTS, json={"name": "broken", "config": {"served_entities": [wanted]}})
    assert answer.status_code != 200, answer.text
    return answer.status_code, answer.json()["error_code"]


@pytest.mark.parametrize("breaks", [break_off, begin_parts], ids=["put", "multipart"])
def test_a_version_whose_upload_broke_cannot_be_deployed(me: Files, breaks: Break) -> None:
    name = f"main.broken.{breaks.__name__}"
    folder = me.new_version(name)
    version = folder.rpartition("/")[2]
    breaks(me, f"{folder}/MLmodel")

    pending = refusal(me, name, version)
    of_it = {"name": name, "version": version}
    finalized = me("POST", "/api/2.0/mlflow/unity-catalog/model-versions/finalize", json=of_it)
    failed = refusal(me, name, version)

    assert finalized.status_code == 400
    assert pending[0] == failed[0] == 400


@pytest.mark.parametrize("breaks", [break_off, begin_parts], ids=["put", "multipart"])
def test_a_version_whose_environment_broke_off_is_not_packed(me: Files, breaks: Break) -> None:
    name = f"main.half.{breaks.__name__}"
    folder = me.new_version(name)
    version = folder.rpartition("/")[2]
    me.file("PUT", f"{folder}/MLmodel", data=MLMODEL)
    me.file("PUT", f"{folder}/_databricks/model_version.tar", data=b"x" * 1024)
    breaks(me, f"{folder}/_databricks/model_environment.tar")
    me.registry("POST", "model-versions/finalize", name=name, version=version)

    body = {"model_name": name, "model_version": version}
    staged = me("POST", f"{ENDPOINTS}:stageDeployment", json=body)

    assert (staged.status_code, staged.json()["error_code"]) == (400, "INVALID_STATE")
    assert refusal(me, name, version, workload_type="GPU_SMALL", throughput_optimized=True) == (
        400,
        "INVALID_PARAMETER_VALUE",
    )
