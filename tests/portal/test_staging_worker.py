"""Staging by a real Celery worker, also by one that is killed half-way."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.archives import packed_environment, packed_model
from tests.support.live_portal import Files, LivePortal

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

StartWorker = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def me(live_portal: LivePortal) -> Files:
    return Files(live_portal, live_portal.token("stager"))


def register(me: Files, name: str, tmp_path: Path, startup: str) -> None:
    """What the client does for a packed model, with a small environment."""
    folder = me.new_version(name)
    me.file("PUT", f"{folder}/MLmodel", data=b"flavors: {python_function: {}}\n")
    for tar in (packed_model(tmp_path), packed_environment(tmp_path, startup=startup)):
        with tar.open("rb") as content:
            done = me.file("PUT", f"{folder}/_databricks/{tar.name}", data=content)
            assert done.status_code == 204
    me.registry("POST", "model-versions/finalize", name=name, version="1")
    asked = {"model_name": name, "model_version": "1"}
    assert me("POST", "/api/2.0/serving-endpoints:stageDeployment", json=asked).json() == {}


def express(portal: LivePortal, name: str) -> tuple[str, str]:
    row = portal.row(
        "SELECT express_state, express_message FROM registry_modelversion v "
        "JOIN registry_registeredmodel m ON m.id = v.model_id WHERE m.name = ?",
        name,
    )
    assert row is not None
    return str(row[0]), str(row[1])


def finished(environments: Path) -> set[str]:
    return {path.name for path in environments.glob("*") if not path.name.startswith(".")}


@pytest.fixture
def start_worker(live_portal: LivePortal) -> Iterator[StartWorker]:
    """Starts a worker; none is left for the tests that share the portal."""
    started = []

    def start() -> subprocess.Popen[bytes]:
        started.append(live_portal.start_worker())
        return started[-1]

    yield start
    for worker in started:
        live_portal.kill(worker)


def test_a_killed_worker_leaves_nothing_half_done_and_the_next_one_does_it_again(
    live_portal: LivePortal, me: Files, tmp_path: Path, start_worker: StartWorker
) -> None:
    name = "main.default.killed"
    environments = live_portal.data / "environments"
    before = finished(environments)
    first = start_worker()
    register(me, name, tmp_path, startup="import time; time.sleep(4)")
    wait_for(lambda: "Checking that mlflow imports" in express(live_portal, name)[1])

    live_portal.kill(first)

    assert express(live_portal, name)[0] == "STAGING"
    assert finished(environments) == before

    start_worker()
    redo_silent_stagings(live_portal, name)
    wait_for(lambda: express(live_portal, name)[0] != "STAGING")

    assert express(live_portal, name)[0] == "STAGED"
    assert len(finished(environments) - before) == 1
    wait_for(lambda: not list(environments.glob(".tmp-*")))


def test_a_request_while_valkey_is_away_is_not_lost(
    live_portal: LivePortal, me: Files, tmp_path: Path, start_worker: StartWorker
) -> None:
    name = "main.default.no_broker"
    live_portal.valkey.kill()
    try:
        register(me, name, tmp_path, startup="")
    finally:
        live_portal.valkey.start()

    assert express(live_portal, name)[0] == "STAGING"
    start_worker()
    redo_silent_stagings(live_portal, name)
    wait_for(lambda: express(live_portal, name)[0] == "STAGED")


def redo_silent_stagings(live_portal: LivePortal, name: str) -> None:
    """As the beat does every 30 s, after the version has been silent for long."""
    code = (
        "from portal.registry.models import ModelVersion as V; from portal.celery import app; "
        f"V.objects.filter(model__name='{name}').update(staging_beat_at='2020-01-01T00:00Z'); "
        "app.send_task('registry.reconcile')"
    )
    live_portal.manage("shell", "-v", "0", "-c", code)


def wait_for(condition: Callable[[], bool], limit_s: float = 240) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
