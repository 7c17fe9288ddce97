"""Replicas as processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import redis

import serving
from serving import bus
from serving.errors import LaunchError
from serving.replica import processes
from serving.replica.__main__ import SECRETS
from serving.replica.environment import inherited_environment
from serving.replica.lock import supervisor_pid
from serving.replica.status import STATUS_FILE, connect, read_status
from serving.spec import ReplicaSpec, ReplicaState, ReplicaStatus, from_json, to_json
from serving.triton import home
from serving.triton.shared_memory import region_prefix, remove_regions

LAUNCH_TIMEOUT_S = 60
KILL_TIMEOUT_S = 5.0
_REPLICA_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ENDED = (ReplicaState.STOPPED, ReplicaState.CRASHED)


class ProcessRuntime:
    """Each replica is a supervisor in a session of its own, with a folder in `replicas_dir`."""

    def __init__(self, replicas_dir: Path, redis_url: str) -> None:
        self._replicas_dir = replicas_dir.resolve()
        self._redis = connect(redis_url)

    def launch(self, spec: ReplicaSpec) -> None:
        """Start the replica's supervisor; nothing happens when it runs already.

        Returns once the supervisor runs and has published STARTING; the model loads after that.

        Raises:
            LaunchError: The supervisor could not be started.
        """
        directory = self._directory(spec.replica_id)
        spec = replace(spec, directory=directory)
        if supervisor_pid(directory) is not None:
            return
        secrets = _write_spec(spec)
        (directory / STATUS_FILE).unlink(missing_ok=True)
        try:
            # The supervisor forks itself off: no parent has to wait for it, none leaves a zombie.
            done = subprocess.run(
                [sys.executable, "-m", "serving.replica", str(directory), "--detach", SECRETS],
                cwd=Path(serving.__path__[0]).parent,
                env=_supervisor_environment(),
                input=json.dumps(secrets).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=LAUNCH_TIMEOUT_S,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise LaunchError(
                f"The supervisor of replica {spec.replica_id} did not start."
            ) from exc
        if done.returncode != 0 and supervisor_pid(directory) is None:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise LaunchError(
                f"The supervisor of replica {spec.replica_id} did not start: {lines[-1]}"
            )

    def status(self, replica_id: str) -> ReplicaStatus | None:
        """Give what the replica last said, to Redis or into its folder.

        A replica whose supervisor is gone without saying goodbye is STOPPED if it was draining,
        else CRASHED.
        """
        directory = self._directory(replica_id)
        is_alive = supervisor_pid(directory) is not None
        told = [self._from_redis(replica_id) if is_alive else None, read_status(directory)]
        said = max(filter(None, told), key=lambda status: status.beat_at, default=None)
        if said is None or is_alive or said.state in _ENDED:
            return said
        is_stopped = said.state is ReplicaState.DRAINING
        return replace(
            said,
            state=ReplicaState.STOPPED if is_stopped else ReplicaState.CRASHED,
            message="Stopped." if is_stopped else "Its supervisor ended without notice.",
            address=None,
            metrics_address=None,
            server_pid=None,
            evidence=(),
            usage=None,
        )

    def stop(self, replica_id: str) -> None:
        """Ask the supervisor to drain and stop; returns at once."""
        _signal(supervisor_pid(self._directory(replica_id)), signal.SIGTERM)

    def kill(self, replica_id: str) -> None:
        """Kill the supervisor and everything its server started."""
        directory = self._directory(replica_id)
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while (pid := supervisor_pid(directory)) is not None and time.monotonic() < deadline:
            _signal(pid, signal.SIGKILL)
            time.sleep(0.02)
        processes.end_marked(directory)
        remove_regions(region_prefix(replica_id, directory))

    def running(self) -> list[str]:
        """Give the ids of the replicas whose supervisor lives."""
        if not self._replicas_dir.is_dir():
            return []
        return sorted(
            entry.name
            for entry in self._replicas_dir.iterdir()
            if supervisor_pid(entry) is not None
        )

    def remove(self, replica_id: str) -> None:
        """Kill the replica if it still runs, and delete its folder."""
        self.kill(replica_id)
        shutil.rmtree(self._directory(replica_id), ignore_errors=True)
        with contextlib.suppress(redis.RedisError):
            self._redis.delete(bus.replica_status_key(replica_id))

    def _directory(self, replica_id: str) -> Path:
        if not _REPLICA_ID.fullmatch(replica_id):
            raise LaunchError(f"{replica_id!r} is not the id of a replica.")
        return self._replicas_dir / replica_id

    def _from_redis(self, replica_id: str) -> ReplicaStatus | None:
        try:
            text = self._redis.get(bus.replica_status_key(replica_id))
            return from_json(ReplicaStatus, str(text)) if text else None
        except (redis.RedisError, ValueError):
            return None


def _write_spec(spec: ReplicaSpec) -> dict[str, str]:
    """Write what the supervisor reads, but for the secrets: these are given back."""
    secrets = {
        name: value
        for name, value in spec.environment_variables.items()
        if name in spec.secret_names
    }
    plain = {k: v for k, v in spec.environment_variables.items() if k not in secrets}
    spec = replace(spec, environment_variables=plain)
    spec.directory.mkdir(parents=True, exist_ok=True)
    draft = spec.directory / "spec.draft"
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(to_json(spec))
    draft.replace(spec.directory / "spec.json")
    return secrets


def _supervisor_environment() -> dict[str, str]:
    """The supervisor needs none of the portal's secrets, so it gets none."""
    given = {home.VARIABLE: os.environ[home.VARIABLE]} if home.VARIABLE in os.environ else {}
    return inherited_environment() | given


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
