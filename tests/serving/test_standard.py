"""A replica on MLflow's own scoring server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from serving.errors import LaunchError
from serving.replica.ports import Ports
from serving.runtime import read_logs
from serving.runtime.processes import ProcessRuntime
from serving.spec import Backend, PythonEnvironment, ReplicaState, ReplicaStatus
from serving.standard.server import StandardServer
from serving.standard.shim import SHIM_FILES
from serving.triton.evidence import is_triton_active
from tests.support.replicas import (
    FAULT,
    SavedModel,
    make_spec,
    post,
    wait_for,
    wait_for_state,
)
from tests.support.sockets import listening_addresses

PORTS = Ports(http=20001, grpc=20002, metrics=20003)


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
    model_environment: PythonEnvironment,
    doubling_model: SavedModel,
) -> Iterator[ProcessRuntime]:
    """A replica "plain"."""
    folder = tmp_path_factory.mktemp("standard")
    runtime = ProcessRuntime(folder / "replicas", "redis://127.0.0.1:1")
    runtime.launch(make_spec("plain", model_environment, doubling_model, backend=Backend.STANDARD))
    yield runtime
    runtime.kill("plain")


@pytest.fixture
def ready(served: ProcessRuntime) -> ReplicaStatus:
    """The served replica, once it is READY."""
    return wait_for_state(served, "plain", ReplicaState.READY)


def ask(address: str | None, *rows: list[float]) -> tuple[int, str]:
    """Send rows to the scoring server."""
    return post(address, "/invocations", {"inputs": rows})


def make_environment_with(folder: Path, *modules: str) -> PythonEnvironment:
    """An environment whose python tells of these modules, real enough to be looked at."""
    (folder / "bin").mkdir(parents=True)
    packages = folder / "packages"
    for module in modules:
        file = packages / module
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec /usr/bin/env python3 -S "$@"\n')
    python.chmod(0o755)
    return PythonEnvironment(
        directory=folder, python_version="3.11", base_prefix=folder, libpython=None
    )


def test_it_answers_as_mlflow_does(ready: ReplicaStatus) -> None:
    status, body = ask(ready.address, [1, 2, 3], [4, 5, 6])

    assert status == 200
    assert json.loads(body) == {"predictions": [[2, 4, 6], [8, 10, 12]]}
    assert ready.metrics_address is None
    assert not is_triton_active(ready)


def test_its_port_is_open_to_this_machine_alone(ready: ReplicaStatus) -> None:
    listening = listening_addresses(ready.supervisor_pid)

    assert [f"{address}:{port}" for address, port in listening] == [ready.address]


def test_it_answers_max_in_flight_requests_at_once(ready: ReplicaStatus) -> None:
    started = time.monotonic()
    threads = [threading.Thread(target=ask, args=(ready.address, [-4, 0, 0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert time.monotonic() - started < 14  # one after another would take 16 s


def test_killed_it_is_back_at_the_same_address(
    served: ProcessRuntime, ready: ReplicaStatus
) -> None:
    assert ready.server_pid is not None

    os.kill(ready.server_pid, signal.SIGKILL)
    again = wait_for_state(served, "plain", ReplicaState.READY, restarts=ready.restarts + 1)

    assert again.address == ready.address
    assert ask(again.address, [1, 2, 3])[0] == 200


def test_it_finishes_what_it_was_asked_before_it_stops(
    runtime: ProcessRuntime, model_environment: PythonEnvironment, doubling_model: SavedModel
) -> None:
    runtime.launch(make_spec("drain", model_environment, doubling_model, backend=Backend.STANDARD))
    ready = wait_for_state(runtime, "drain", ReplicaState.READY)
    answers: list[int] = []
    slow = threading.Thread(target=lambda: answers.append(ask(ready.address, [-3, 0, 0])[0]))
    slow.start()
    time.sleep(0.3)

    runtime.stop("drain")
    stopped = wait_for_state(runtime, "drain", ReplicaState.STOPPED)
    slow.join()

    assert answers == [200]
    assert stopped.message == "Stopped."
    wait_for(lambda: runtime.running() == [])


def test_a_model_that_does_not_import_is_given_up_with_its_own_words(
    runtime: ProcessRuntime,
    model_environment: PythonEnvironment,
    doubling_model: SavedModel,
    tmp_path: Path,
) -> None:
    spec = make_spec(
        "fails",
        model_environment,
        doubling_model,
        backend=Backend.STANDARD,
        environment_variables={FAULT: "import"},
    )
    runtime.launch(spec)

    crashed = wait_for_state(runtime, "fails", ReplicaState.CRASHED)

    assert crashed.message == (
        "The model failed to load: ModuleNotFoundError: No module named 'no_such_module'"
    )
    last = read_logs(tmp_path / "replicas" / "fails")[-1]
    assert last.source == "shoal"
    assert "exit code 1" in last.text


def test_mlflow_3_runs_in_uvicorn(
    model_environment: PythonEnvironment, doubling_model: SavedModel, tmp_path: Path
) -> None:
    spec = make_spec(
        "abcde", model_environment, doubling_model, backend=Backend.STANDARD, directory=tmp_path
    )
    server = StandardServer(spec)
    server.prepare()

    command = server.command(PORTS)

    assert command.arguments[:4] == [
        str(model_environment.python),
        "-m",
        "uvicorn",
        "shoal_asgi:app",
    ]
    assert {"--host=127.0.0.1", "--port=20001", "--workers=1"} < set(command.arguments)
    assert command.environment["__pyfunc_model_path__"] == doubling_model.directory.as_uri()


def test_mlflow_2_runs_in_gunicorn(tmp_path: Path, doubling_model: SavedModel) -> None:
    environment = make_environment_with(
        tmp_path / "env",
        "mlflow/__init__.py",
        "mlflow/pyfunc/scoring_server/wsgi.py",
        "gunicorn/__init__.py",
        "gunicorn/ctl/__init__.py",
        "flask/__init__.py",
    )
    spec = make_spec(
        "abcde", environment, doubling_model, backend=Backend.STANDARD, directory=tmp_path
    )
    server = StandardServer(replace(spec, max_in_flight=8))
    server.prepare()

    arguments = server.command(PORTS).arguments

    assert arguments[2:4] == ["gunicorn", "shoal_wsgi:app"]
    assert {"--bind=127.0.0.1:20001", "--threads=9", "--no-control-socket"} < set(arguments)


def test_an_environment_without_mlflow_is_refused(
    tmp_path: Path, doubling_model: SavedModel
) -> None:
    environment = make_environment_with(tmp_path / "env", "numpy/__init__.py")
    spec = make_spec("abcde", environment, doubling_model, backend=Backend.STANDARD)

    with pytest.raises(LaunchError, match="has no mlflow"):
        StandardServer(spec).prepare()


def test_an_environment_without_a_web_server_is_refused(
    tmp_path: Path, doubling_model: SavedModel
) -> None:
    environment = make_environment_with(
        tmp_path / "env", "mlflow/__init__.py", "mlflow/pyfunc/scoring_server/app.py"
    )
    spec = make_spec("abcde", environment, doubling_model, backend=Backend.STANDARD)

    with pytest.raises(LaunchError, match="it has no uvicorn and no fastapi"):
        StandardServer(spec).prepare()


WSGI_SERVER = """
def app(environ, start_response):
    path = environ["PATH_INFO"]
    start_response("400 BAD REQUEST" if path == "/no" else "200 OK", [("Content-Length", "99")])
    return [b'{"message": "no login with hu', b'nter2!", "code": 7}']
"""


def test_mlflow_2_answers_errors_masked_and_the_rest_as_it_is(tmp_path: Path) -> None:
    package = tmp_path / "mlflow" / "pyfunc" / "scoring_server"
    package.mkdir(parents=True)
    for folder in (package, *list(package.parents)[:2]):
        (folder / "__init__.py").touch()
    (package / "wsgi.py").write_text(WSGI_SERVER)
    for file in SHIM_FILES:
        shutil.copyfile(file, tmp_path / file.name)
    code = """
import shoal_wsgi
for path in ("/no", "/yes"):
    told = []
    body = shoal_wsgi.app({"PATH_INFO": path}, lambda *arguments: told.extend(arguments))
    print(told[0], dict(told[1])["Content-Length"], b"".join(body).decode())
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}){code}"],
        env={"SHOAL_SECRET_NAMES": "DB", "DB": "hunter2!"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == [
        '400 BAD REQUEST 48 {"message": "no login with [masked]", "code": 7}',
        '200 OK 99 {"message": "no login with hunter2!", "code": 7}',
    ]
