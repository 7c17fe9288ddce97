"""A replica on the real Triton: how it starts, what it survives, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from serving.replica import processes
from serving.runtime import read_logs
from serving.runtime.processes import ProcessRuntime
from serving.spec import (
    EvidenceKind,
    PythonEnvironment,
    ReplicaSpec,
    ReplicaState,
    ReplicaStatus,
    Usage,
    to_json,
)
from serving.triton.evidence import is_triton_active
from serving.triton.shared_memory import SHARED_MEMORY, region_prefix
from tests.support.model_environment import make_environment
from tests.support.replicas import (
    FAULT,
    SavedModel,
    infer,
    make_spec,
    wait_for,
    wait_for_state,
)
from tests.support.sockets import listening_addresses
from tests.support.valkey import Valkey

pytestmark = pytest.mark.triton

LAUNCH = """
import sys, time
from pathlib import Path
from serving.runtime.processes import ProcessRuntime
from serving.spec import ReplicaSpec, from_json

spec = from_json(ReplicaSpec, sys.argv[2])
ProcessRuntime(Path(sys.argv[1]), spec.redis_url).launch(spec)
print("launched", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
    model_environment: PythonEnvironment,
    doubling_model: SavedModel,
) -> Iterator[tuple[ProcessRuntime, Path, Valkey]]:
    """A replica "abcde", launched with Redis away by a process that was then killed."""
    replicas = tmp_path_factory.mktemp("served") / "replicas"
    valkey = Valkey(replicas.parent / "valkey.sock")
    runtime = ProcessRuntime(replicas, valkey.url)
    spec = make_spec(
        "abcde",
        model_environment,
        doubling_model,
        redis_url=valkey.url,
        environment_variables={"TEST_TOKEN": "hush-hush-hush"},
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(replicas), to_json(spec)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == b"launched\n"
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    launcher.stdout.close()
    yield runtime, replicas / "abcde", valkey
    runtime.kill("abcde")
    valkey.kill()


@pytest.fixture
def ready(served: tuple[ProcessRuntime, Path, Valkey]) -> ReplicaStatus:
    """The served replica, once it is READY."""
    return wait_for_state(served[0], "abcde", ReplicaState.READY)


def texts(directory: Path) -> list[str]:
    """The whole log, each line with its source."""
    return [f"{x.source}: {x.text}" for x in read_logs(directory, after=0, limit=10_000)]


def regions(replica_id: str, directory: Path) -> list[Path]:
    """Shared memory in the replica's name."""
    return list(SHARED_MEMORY.glob(f"{region_prefix(replica_id, directory)}*"))


def rows_seen(runtime: ProcessRuntime) -> int:
    """Rows that the replica says its Triton batched."""
    status = runtime.status("abcde")
    seen = status.batching_seen if status else None
    assert seen is None or sum(s.rows * s.executions for s in seen.total.sizes) == seen.total.rows
    return seen.total.rows if seen else 0


# ---------------------------------------------------------------- one replica, again and again


def test_it_outlives_its_launcher_and_proves_that_triton_is_attached(
    served: tuple[ProcessRuntime, Path, Valkey], ready: ReplicaStatus
) -> None:
    runtime, directory, _ = served

    assert runtime.running() == ["abcde"]
    assert is_triton_active(ready)
    assert [e.kind for e in ready.evidence] == list(EvidenceKind)
    lines = {x.number: x.text for x in read_logs(directory, after=0, limit=10_000)}
    assert all(lines[e.line or 0] == e.text for e in ready.evidence)
    assert infer(ready.address, [1, 2, 3]) == 200
    wait_for(lambda: rows_seen(runtime) >= 1, timeout_s=20)
    assert (directory / "spec.json").stat().st_mode & 0o777 == 0o600


def test_its_three_ports_are_open_to_this_machine_alone(
    served: tuple[ProcessRuntime, Path, Valkey], ready: ReplicaStatus
) -> None:
    listening = listening_addresses(ready.supervisor_pid)

    assert {str(address) for address, _ in listening} == {"127.0.0.1"}
    ports = {port for _, port in listening}
    assert len(ports) == 3
    for address in (ready.address, ready.metrics_address):
        assert address is not None
        assert int(address.rpartition(":")[2]) in ports


def test_the_banner_is_marked_as_the_supervisor_s(
    served: tuple[ProcessRuntime, Path, Valkey], ready: ReplicaStatus
) -> None:
    log = texts(served[1])

    start = log.index("shoal: == Triton Inference Server ==")
    assert log[start - 1] == log[start + 1] == f"shoal: {'=' * 29}"
    assert log[start + 2] == "shoal: Triton Server Version 2.51.0"
    assert any("CPU emulation" in line for line in log)
    # The one error of a Triton without a GPU, once a start, is explained; there is no other.
    assert log[start + 4].startswith("shoal: Triton's error about CudaDriverHelper")
    errors = [line for line in log if re.match(r"server: E\d{4} ", line)]
    assert errors
    assert all("CudaDriverHelper" in line for line in errors)


def test_what_the_model_prints_shows_at_once_with_its_secrets_masked(
    served: tuple[ProcessRuntime, Path, Valkey], ready: ReplicaStatus
) -> None:
    assert "server: the model says hello, token [masked]" in texts(served[1])


def test_it_tells_what_it_uses_of_the_node(
    served: tuple[ProcessRuntime, Path, Valkey], ready: ReplicaStatus
) -> None:
    def usage() -> Usage | None:
        status = served[0].status("abcde")
        return status.usage if status else None

    wait_for(lambda: usage() is not None)

    found = usage()
    assert found is not None
    assert 2**26 < found.memory_bytes < 2**35  # a server and a Python with MLflow
    assert 0 < found.memory_percent < 100
    assert 0 <= found.cpu_percent <= 100
    assert found.gpus == ()


def test_triton_killed_is_back_within_seconds_at_the_same_address(
    served: tuple[ProcessRuntime, Path, Valkey], ready: ReplicaStatus
) -> None:
    runtime, directory, _ = served
    assert ready.server_pid is not None

    os.kill(ready.server_pid, signal.SIGKILL)
    again = wait_for_state(runtime, "abcde", ReplicaState.READY, restarts=ready.restarts + 1)

    assert is_triton_active(again)
    assert again.address == ready.address
    assert again.server_pid != ready.server_pid
    assert again.supervisor_pid == ready.supervisor_pid
    assert infer(again.address, [1, 2, 3]) == 200
    assert any("exit code 137" in line for line in texts(directory))
    assert len(regions("abcde", directory)) == 1  # the killed one's is gone


def test_a_killed_stub_that_triton_does_not_miss_is_replaced(
    served: tuple[ProcessRuntime, Path, Valkey], ready: ReplicaStatus
) -> None:
    runtime, directory, _ = served
    assert ready.server_pid is not None
    (stub,) = processes.children(ready.server_pid)

    os.kill(stub, signal.SIGKILL)
    again = wait_for_state(runtime, "abcde", ReplicaState.READY, restarts=ready.restarts + 1)

    assert infer(again.address, [1, 2, 3]) == 200
    assert any("The model's process died" in line for line in texts(directory))


def test_redis_may_come_late_and_go(
    served: tuple[ProcessRuntime, Path, Valkey], ready: ReplicaStatus
) -> None:
    runtime, directory, valkey = served
    valkey.start()
    file = directory / "status.json"
    kept = file.read_text()

    def is_told() -> bool:
        file.write_text("{}")  # so that only Redis can tell
        return runtime.status("abcde") is not None

    wait_for(is_told, timeout_s=30)
    file.write_text(kept)
    valkey.kill()

    assert infer(ready.address, [1, 2, 3]) == 200
    status = runtime.status("abcde")
    assert status is not None
    assert status.state is ReplicaState.READY


def test_a_second_supervisor_is_refused(
    served: tuple[ProcessRuntime, Path, Valkey], ready: ReplicaStatus
) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "serving.replica", str(served[1])],
        capture_output=True,
        text=True,
        check=False,
    )

    assert second.returncode == 1
    assert f"Another supervisor (process {ready.supervisor_pid}) runs" in second.stderr
    assert infer(ready.address, [1, 2, 3]) == 200


def test_launching_a_running_replica_changes_nothing(
    served: tuple[ProcessRuntime, Path, Valkey],
    ready: ReplicaStatus,
    model_environment: PythonEnvironment,
    doubling_model: SavedModel,
) -> None:
    served[0].launch(make_spec("abcde", model_environment, doubling_model))

    status = served[0].status("abcde")
    assert status is not None
    assert status.supervisor_pid == ready.supervisor_pid


# ---------------------------------------------------------------- the end


def test_it_drains_and_stops_though_a_connection_stays_open(
    runtime: ProcessRuntime,
    model_environment: PythonEnvironment,
    doubling_model: SavedModel,
    tmp_path: Path,
) -> None:
    # The open connection alone would hold Triton for this long.
    runtime.launch(make_spec("drain", model_environment, doubling_model, drain_deadline_s=90.0))
    ready = wait_for_state(runtime, "drain", ReplicaState.READY)
    idle = http.client.HTTPConnection(ready.address or "")
    idle.request("GET", "/v2/health/ready")
    idle.getresponse().read()
    answers: list[int] = []
    slow = threading.Thread(target=lambda: answers.append(infer(ready.address, [-3, 0, 0])))
    slow.start()
    time.sleep(0.3)

    started = time.monotonic()
    runtime.stop("drain")
    runtime.stop("drain")
    draining = wait_for_state(runtime, "drain", ReplicaState.DRAINING)
    stopped = wait_for_state(runtime, "drain", ReplicaState.STOPPED)
    slow.join()
    idle.close()

    assert draining.address == ready.address
    assert answers == [200]
    assert time.monotonic() - started < 60
    assert (stopped.address, stopped.server_pid, stopped.evidence) == (None, None, ())
    wait_for(lambda: runtime.running() == [])
    assert not is_triton_active(stopped)
    assert regions("drain", tmp_path / "replicas" / "drain") == []
    runtime.stop("drain")


def test_a_killed_supervisor_takes_its_server_along(
    runtime: ProcessRuntime,
    model_environment: PythonEnvironment,
    doubling_model: SavedModel,
    tmp_path: Path,
) -> None:
    spec = make_spec("gone1", model_environment, doubling_model)
    runtime.launch(spec)
    ready = wait_for_state(runtime, "gone1", ReplicaState.READY)
    assert ready.server_pid is not None

    os.kill(ready.supervisor_pid, signal.SIGKILL)

    gone = wait_for_state(runtime, "gone1", ReplicaState.CRASHED)
    wait_for(lambda: processes.is_dead(ready.server_pid or 0), timeout_s=20)
    assert (gone.address, gone.server_pid) == (None, None)
    assert runtime.running() == []
    runtime.launch(spec)
    wait_for_state(runtime, "gone1", ReplicaState.STARTING)
    lines = read_logs(tmp_path / "replicas" / "gone1", after=0, limit=10_000)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert sum(line.text.startswith("Replica gone1 of") for line in lines) == 2
    runtime.remove("gone1")
    assert not (tmp_path / "replicas" / "gone1").exists()
    assert runtime.status("gone1") is None


# ---------------------------------------------------------------- what does not start


def test_a_model_that_does_not_import_is_given_up_with_its_own_words(
    runtime: ProcessRuntime, model_environment: PythonEnvironment, doubling_model: SavedModel
) -> None:
    faulty = {FAULT: "import"}
    runtime.launch(
        make_spec("fails", model_environment, doubling_model, environment_variables=faulty)
    )

    crashed = wait_for_state(runtime, "fails", ReplicaState.CRASHED)

    assert crashed.message == (
        "The model failed to load: ModuleNotFoundError: No module named 'no_such_module'"
    )
    assert crashed.exit_code == 1
    assert crashed.restarts == 0
    wait_for(lambda: runtime.running() == [])


def test_a_model_that_loads_for_ever_meets_the_deadline(
    runtime: ProcessRuntime, model_environment: PythonEnvironment, doubling_model: SavedModel
) -> None:
    spec = make_spec(
        "sleep",
        model_environment,
        doubling_model,
        environment_variables={FAULT: "sleep"},
        start_deadline_s=6.0,
    )
    runtime.launch(spec)

    crashed = wait_for_state(runtime, "sleep", ReplicaState.CRASHED)

    assert crashed.message == "The server was not ready within 6 s."
    assert crashed.server_pid is None


def test_a_stub_that_dies_before_it_speaks_does_not_hang_the_replica(
    runtime: ProcessRuntime, doubling_model: SavedModel, tmp_path: Path
) -> None:
    environment = make_environment(tmp_path / "env")
    (site,) = (tmp_path / "env" / "lib").glob("python3.*/site-packages")
    # Passes the trial, which runs `python -c`, and dies inside the stub.
    (site / "sitecustomize.py").write_text(
        "import os, sys\nif '-c' not in sys.orig_argv: os._exit(7)\n"
    )
    runtime.launch(make_spec("mute1", environment, doubling_model))

    status = wait_for_state(
        runtime, "mute1", ReplicaState.STARTING, ReplicaState.CRASHED, restarts=1
    )

    assert "The model's process died" in status.message


def test_a_static_python_is_refused_before_anything_starts(
    runtime: ProcessRuntime, model_environment: PythonEnvironment, doubling_model: SavedModel
) -> None:
    static = replace(model_environment, libpython=None)
    spec: ReplicaSpec = make_spec("stati", static, doubling_model)
    runtime.launch(spec)

    crashed = wait_for_state(runtime, "stati", ReplicaState.CRASHED)

    assert "built without a shared library" in crashed.message
    assert crashed.exit_code is None


@pytest.fixture(scope="module")
def impatient(
    tmp_path_factory: pytest.TempPathFactory,
    model_environment: PythonEnvironment,
    doubling_model: SavedModel,
) -> Iterator[tuple[ProcessRuntime, Path]]:
    """A replica "impat", and its folder, whose callers wait for a second."""
    replicas = tmp_path_factory.mktemp("impatient")
    runtime = ProcessRuntime(replicas, "redis://127.0.0.1:1")
    runtime.launch(make_spec("impat", model_environment, doubling_model, request_timeout_s=1.0))
    wait_for_state(runtime, "impat", ReplicaState.READY)
    yield runtime, replicas / "impat"
    runtime.kill("impat")


def test_a_model_that_hangs_while_triton_says_it_is_ready_is_replaced(
    impatient: tuple[ProcessRuntime, Path],
) -> None:
    runtime, directory = impatient
    before = wait_for_state(runtime, "impat", ReplicaState.READY)
    asked = threading.Thread(target=lambda: swallow(infer, before.address, [-1000.0, 0.0, 0.0]))
    asked.start()

    after = wait_for_state(runtime, "impat", ReplicaState.READY, restarts=before.restarts + 1)

    asked.join()
    assert infer(after.address, [1.0, 2.0, 3.0]) == 200
    assert said(
        directory, "shoal: The model has worked on one batch", "it hangs. Starting it again"
    )


def test_a_model_that_is_stopped_by_a_signal_is_replaced(
    impatient: tuple[ProcessRuntime, Path],
) -> None:
    runtime, directory = impatient
    before = wait_for_state(runtime, "impat", ReplicaState.READY)
    (stub,) = processes.children(before.server_pid or 0)

    os.kill(stub, signal.SIGSTOP)

    after = wait_for_state(runtime, "impat", ReplicaState.READY, restarts=before.restarts + 1)
    assert infer(after.address, [1.0, 2.0, 3.0]) == 200
    assert said(directory, "shoal: The server was stopped by a signal", "Starting it again")


def said(directory: Path, start: str, end: str) -> bool:
    """Whether one line of the log begins so and holds that."""
    return any(line.startswith(start) and end in line for line in texts(directory))


def swallow(call: Callable[..., object], *arguments: object) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        call(*arguments)
