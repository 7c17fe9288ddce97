"""The runtime of this machine; what needs a server is in `test_replica_triton`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from serving.errors import LaunchError
from serving.replica.lock import AlreadyRunning, SupervisorLock, supervisor_pid
from serving.runtime.processes import ProcessRuntime
from serving.spec import PythonEnvironment, ReplicaState, ReplicaStatus, to_json
from tests.serving.test_replica_status import READY
from tests.support.replicas import SavedModel, make_spec, wait_for_state


def write_status(folder: Path, status: ReplicaStatus) -> None:
    """What a supervisor that is gone left behind."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "status.json").write_text(to_json(status))


def test_an_unknown_replica_has_no_status_and_can_be_ended(runtime: ProcessRuntime) -> None:
    runtime.stop("nobod")
    runtime.kill("nobod")
    runtime.remove("nobod")

    assert runtime.status("nobod") is None
    assert runtime.running() == []


@pytest.mark.parametrize(
    ("said", "true"),
    [
        (ReplicaState.STARTING, ReplicaState.CRASHED),
        (ReplicaState.READY, ReplicaState.CRASHED),
        (ReplicaState.DRAINING, ReplicaState.STOPPED),
        (ReplicaState.STOPPED, ReplicaState.STOPPED),
        (ReplicaState.CRASHED, ReplicaState.CRASHED),
    ],
)
def test_the_status_of_a_vanished_supervisor_is_corrected(
    runtime: ProcessRuntime, tmp_path: Path, said: ReplicaState, true: ReplicaState
) -> None:
    write_status(tmp_path / "replicas" / "abcde", replace(READY, state=said))

    status = runtime.status("abcde")

    assert status is not None
    assert status.state is true


def test_only_ids_are_taken_for_folders(runtime: ProcessRuntime) -> None:
    with pytest.raises(LaunchError, match="is not the id of a replica"):
        runtime.remove("../elsewhere")


def test_a_spec_that_cannot_be_read_is_a_launch_error(
    runtime: ProcessRuntime, doubling_model: SavedModel, model_environment: PythonEnvironment
) -> None:
    spec = make_spec("abcde", model_environment, doubling_model, redis_url="nonsense://")

    with pytest.raises(LaunchError, match=r"The supervisor of replica abcde did not start: .*URL"):
        runtime.launch(spec)


def test_a_triton_that_is_not_there_is_said_in_the_status(
    runtime: ProcessRuntime,
    doubling_model: SavedModel,
    model_environment: PythonEnvironment,
    tmp_path: Path,
) -> None:
    spec = make_spec("abcde", model_environment, doubling_model, triton_home=tmp_path)
    runtime.launch(spec)

    crashed = wait_for_state(runtime, "abcde", ReplicaState.CRASHED)

    assert crashed.message == "The Triton installation is incomplete: it has no bin/tritonserver."


def test_the_lock_is_seen_from_outside_and_refuses_a_second(tmp_path: Path) -> None:

    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib; from serving.replica.lock import SupervisorLock as L;"
            "lock = L(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()",
            str(tmp_path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert supervisor_pid(tmp_path) == holder.pid
        with pytest.raises(AlreadyRunning, match=str(holder.pid)):
            SupervisorLock(tmp_path)
        holder.communicate()

    assert supervisor_pid(tmp_path) is None
