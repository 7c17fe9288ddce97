"""MLflow's own scoring server, run in the model's environment.

MLflow 3 serves with uvicorn and FastAPI, MLflow 2 with gunicorn and Flask; both as in MLflow's
`scoring_server.get_cmd`, but started with `python -m`, since an unpacked environment's console
scripts hold the path of another machine.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence

from serving.errors import LaunchError
from serving.replica import processes
from serving.replica.environment import server_environment
from serving.replica.http import ask
from serving.replica.ports import Ports
from serving.replica.server import Cause, Command, Health
from serving.spec import BatchingSeen, Evidence, LogLine, ReplicaSpec
from serving.standard.shim import SHIM_FILES

MODEL_PATH_VARIABLE = "__pyfunc_model_path__"  # mlflow.pyfunc.scoring_server._SERVER_MODEL_PATH
TIMEOUT_VARIABLE = "MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT"
REQUEST_TIMEOUT_S = 600  # the gateway's own comes first
KEEP_ALIVE_S = 600  # longer than the gateway keeps a connection, so that it is the one to close
LOOK_TIMEOUT_S = 60
QUIET_S = 1.0

LOOK = """\
import importlib.util as u, json, os
names = ("mlflow", "uvicorn", "fastapi", "gunicorn", "flask")
found = {name: u.find_spec(name) for name in names}
def has(name, *path):
    spec = found[name]
    return bool(spec and os.path.exists(os.path.join(os.path.dirname(spec.origin), *path)))
print(json.dumps({
    "asgi": has("mlflow", "pyfunc", "scoring_server", "app.py"),
    "wsgi": has("mlflow", "pyfunc", "scoring_server", "wsgi.py"),
    "control_socket": has("gunicorn", "ctl"),
    **{name: spec is not None for name, spec in found.items()},
}))
"""
"""Run in the environment: what is there, without the seconds that importing MLflow takes."""

_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|NotFound)\b.*")
"""The last line of a traceback."""


class StandardServer:
    """One scoring server that answers `max_in_flight` requests at once."""

    patience_s = 120.0  # a model that keeps Python's lock keeps the server from answering

    def __init__(self, spec: ReplicaSpec) -> None:
        self._spec = spec
        self._is_asgi = True
        self._has_control_socket = False
        self._shim = spec.directory / "scoring"

    def prepare(self) -> None:
        """Look which of MLflow's two servers the environment has."""
        found = self._look()
        if not found["mlflow"]:
            raise LaunchError("The model's environment has no mlflow. Add it to its requirements.")
        self._is_asgi = found["asgi"]
        self._has_control_socket = found["control_socket"]
        needed = ("uvicorn", "fastapi") if found["asgi"] else ("gunicorn", "flask")
        missing = [name for name in needed if not found[name]]
        if missing or not (found["asgi"] or found["wsgi"]):
            raise LaunchError(
                "The model's environment cannot run MLflow's scoring server: it has no"
                f" {' and no '.join(missing) or 'scoring server'}. Add it to its requirements."
            )
        self._shim.mkdir(exist_ok=True)
        for file in SHIM_FILES:
            shutil.copyfile(file, self._shim / file.name)

    def banner(self) -> Sequence[str]:
        """Name the server: its own output does not."""
        server = "uvicorn" if self._is_asgi else "gunicorn"
        return [f"MLflow's scoring server ({server}); requests are not batched."]

    def command(self, ports: Ports) -> Command:
        """Give the command; requests run in threads, and share one copy of the model."""
        spec = self._spec
        variables = server_environment(spec)
        variables[MODEL_PATH_VARIABLE] = spec.model_directory.as_uri()
        variables[TIMEOUT_VARIABLE] = str(REQUEST_TIMEOUT_S)
        options = self._uvicorn(ports) if self._is_asgi else self._gunicorn(ports)
        return Command(
            arguments=[str(spec.environment.python), "-m", *options],
            environment=variables,
            directory=spec.directory / "work",
        )

    def forget(self) -> None:
        """Nothing is remembered."""

    def is_vital(self, text: str) -> bool:
        """Exceptions: they tell why it ended."""
        return _EXCEPTION.match(text) is not None

    def read(self, line: LogLine) -> None:
        """Its lines prove nothing that matters."""

    def check(self, ports: Ports, *, timeout_s: float) -> Health:
        """Ask for its health."""
        answer = ask(self._spec.host, ports.http, "/ping", timeout_s=timeout_s)
        if answer is None:
            return Health.SILENT
        return Health.READY if answer.status == 200 else Health.NOT_READY

    def hang(self, ports: Ports, pid: int) -> str | None:
        """It has no more to show than its answer to `check`."""
        return None

    def is_proven(self) -> bool:
        """Its answer is enough."""
        return True

    def port(self, ports: Ports) -> int:
        """The one it was given."""
        return ports.http

    def is_listening(self, ports: Ports, pid: int) -> bool:
        """Whether its own process has the port."""
        return processes.is_listening(pid, ports.http)

    def metrics_port(self, ports: Ports) -> int | None:
        """It has none."""
        return None

    def evidence(self) -> tuple[Evidence, ...]:
        """Evidence is for Triton."""
        return ()

    def batching_seen(self, ports: Ports, *, timeout_s: float) -> BatchingSeen | None:
        """Nothing: each request is a call of its own."""
        return None

    def vital_children(self, pid: int) -> Sequence[int]:
        """Both servers start lost workers again themselves."""
        return ()

    def cause(self, lines: Sequence[str]) -> Cause | None:
        """Give the last exception it wrote."""
        for line in reversed(lines):
            if _EXCEPTION.match(line):
                return Cause(message=f"The model failed to load: {line[:500]}", is_final=True)
        return None

    def drain(self, ports: Ports, *, deadline: float) -> float:
        """Let the gateway's last requests arrive; the server finishes them after SIGTERM."""
        time.sleep(min(QUIET_S, max(0.0, deadline - time.monotonic())))
        return deadline - time.monotonic()

    def clean_up(self) -> None:
        """Nothing is left outside the folder."""

    def _uvicorn(self, ports: Ports) -> list[str]:
        # MLflow hands requests to asyncio's threads, of which there are so many:
        threads = min(32, len(os.sched_getaffinity(0)) + 4)
        return [
            "uvicorn",
            "shoal_asgi:app",
            f"--app-dir={self._shim}",
            f"--host={self._spec.host}",
            f"--port={ports.http}",
            f"--workers={math.ceil(self._spec.max_in_flight / threads)}",
            "--log-level=info",
            "--no-access-log",
            f"--timeout-keep-alive={KEEP_ALIVE_S}",
            f"--timeout-graceful-shutdown={max(1, int(self._spec.drain_deadline_s))}",
        ]

    def _gunicorn(self, ports: Ports) -> list[str]:
        return [
            "gunicorn",
            "shoal_wsgi:app",
            f"--pythonpath={self._shim}",
            f"--bind={self._spec.host}:{ports.http}",
            "--workers=1",
            "--worker-class=gthread",
            f"--threads={self._spec.max_in_flight + 1}",  # one for the question after its health
            f"--timeout={REQUEST_TIMEOUT_S}",
            f"--keep-alive={KEEP_ALIVE_S}",
            f"--graceful-timeout={max(1, int(self._spec.drain_deadline_s))}",
            "--log-level=info",
            # Late gunicorns open one in the home directory, the same for every replica.
            *(["--no-control-socket"] if self._has_control_socket else []),
        ]

    def _look(self) -> dict[str, bool]:
        try:
            done = subprocess.run(
                [str(self._spec.environment.python), "-c", LOOK],
                env=server_environment(self._spec),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LOOK_TIMEOUT_S,
                check=True,
            )
            found: dict[str, bool] = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as exc:
            raise LaunchError("The Python of the model's environment does not run.") from exc
        return found
