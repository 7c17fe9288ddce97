"""A replica of a model that brings its own server: where it listens, how it starts and ends."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.entrypoint.command import localize
from serving.runtime import read_logs
from serving.runtime.processes import ProcessRuntime
from serving.spec import Backend, PythonEnvironment, ReplicaState, ReplicaStatus
from tests.support.entrypoint import save_own_server
from tests.support.replicas import SavedModel, make_spec, post, wait_for_state

Start = Callable[..., ReplicaStatus]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("serve --host 0.0.0.0 --port 8080", "serve --host 127.0.0.1 --port 19000"),
        ("serve --port=8080 --limit 8080", "serve --port=19000 --limit 8080"),
        ("gunicorn -b 0.0.0.0:8080 app", "gunicorn -b 127.0.0.1:19000 app"),
        ("serve --http-port 8080 -p 8080", "serve --http-port 19000 -p 19000"),
        ('PORT="8080" serve', 'PORT="19000" serve'),
        ("serve --port 80801 10.0.0.0.0", "serve --port 80801 10.0.0.0.0"),
        ("serve --port $PORT", "serve --port $PORT"),
    ],
)
def test_the_command_is_told_its_own_host_and_port(command: str, expected: str) -> None:
    assert localize(command, host="127.0.0.1", port=19000) == expected


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return save_own_server(tmp_path_factory.mktemp("models") / "own")


@pytest.fixture
def start(
    runtime: ProcessRuntime, model_environment: PythonEnvironment, own_server: SavedModel
) -> Start:
    """Starts a replica with this command; its status once it is READY or has CRASHED."""

    def start(replica_id: str, entrypoint: str, **changes: Any) -> ReplicaStatus:
        spec = make_spec(
            replica_id,
            model_environment,
            own_server,
            backend=Backend.ENTRYPOINT,
            entrypoint=entrypoint,
            **changes,
        )
        runtime.launch(spec)
        return wait_for_state(runtime, replica_id, ReplicaState.READY, ReplicaState.CRASHED)

    return start


@pytest.mark.parametrize(
    "entrypoint",
    [
        "python -u server.py --port 8080",
        "python -u server.py --port $PORT --no-health",
        "true && python -u server.py --host 0.0.0.0 --port 8080 | cat",
    ],
)
def test_it_runs_in_the_artifacts_folder_with_the_environment_s_python(
    start: Start, model_environment: PythonEnvironment, own_server: SavedModel, entrypoint: str
) -> None:
    status = start("own01", entrypoint, environment_variables={"GREETING": "hello"})

    assert status.state is ReplicaState.READY, status.message
    assert post(status.address, "/invocations", {"say": "where"}) == (
        200,
        f"{own_server.directory / 'artifacts'} {model_environment.directory} hello",
    )
    assert not str(status.address).endswith(":8080")


def test_a_command_that_listens_elsewhere_is_found_and_said_to(
    start: Start, tmp_path: Path
) -> None:
    port = free_port()

    status = start("own02", f"python -u server.py --port {port}")

    assert status.address == f"127.0.0.1:{port}"
    lines = [line.text for line in read_logs(tmp_path / "replicas" / "own02", after=0)]
    assert any(f"It listens on port {port} instead" in line for line in lines)


@pytest.fixture
def port_8080_is_taken() -> Iterator[None]:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8080))
            taken.listen()
        except OSError:
            pass  # by somebody else, which will do
        yield


@pytest.mark.usefixtures("port_8080_is_taken")
def test_a_command_that_insists_on_a_taken_port_is_told_what_to_do(start: Start) -> None:
    status = start("own03", "python -u server.py --port 80''80")

    assert status.state is ReplicaState.CRASHED
    assert "Let the command take its port from the variable PORT." in status.message


def test_a_command_that_fails_is_given_up_with_its_own_words(start: Start) -> None:
    status = start("own04", "python -c 'import no_such_module'")

    assert status.state is ReplicaState.CRASHED
    assert "No module named 'no_such_module'" in status.message


def test_killed_it_is_back_and_it_finishes_what_it_was_asked_before_it_stops(
    start: Start, runtime: ProcessRuntime
) -> None:
    before = start("own05", "python -u server.py --port 8080")

    os.kill(before.server_pid or 0, signal.SIGKILL)
    after = wait_for_state(runtime, "own05", ReplicaState.READY, restarts=1)
    answers: list[tuple[int, str]] = []
    asked = threading.Thread(
        target=lambda: answers.append(post(after.address, "/invocations", {"sleep": 3}))
    )
    asked.start()
    time.sleep(0.3)
    runtime.stop("own05")

    wait_for_state(runtime, "own05", ReplicaState.STOPPED)
    asked.join()
    assert answers == [(200, "slept")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
