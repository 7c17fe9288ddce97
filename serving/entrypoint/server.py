"""A model that brings its own server: the command of its MLmodel, which answers `/invocations`."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from serving.entrypoint.command import CONTRACT_PORT, localize, variables
from serving.errors import LaunchError
from serving.replica import processes
from serving.replica.environment import server_environment
from serving.replica.http import ask
from serving.replica.ports import Ports, is_free
from serving.replica.server import Cause, Command, Health, Say
from serving.spec import BatchingSeen, Evidence, LogLine, ReplicaSpec

HEALTH_PATHS = ("/health", "/ping", "/v1/models")
INVOCATIONS = "/invocations"
NOT_THERE = frozenset({400, 404, 405, 501})
"""What servers say to a path or a method that they do not know."""

LOADING = frozenset({404, 502, 503})
"""What it says at /invocations while it does not serve; that it cannot read `{}` is an answer."""

QUIET_S = 1.0
POLL_S = 0.1
END_S = 5.0
ARTIFACTS = "artifacts"

_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|NotFound)\b.*")
_IN_USE = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)
_PORT_IS_TAKEN = (
    f"The model's command listens on port {CONTRACT_PORT} whatever it is told, and another program "
    "on this machine has that port. Let the command take its port from the variable PORT."
)


class EntrypointServer:
    """The command, and where what it starts listens."""

    patience_s = 300.0  # one that answers one request after the other is not hung

    def __init__(self, spec: ReplicaSpec, say: Say) -> None:
        self._spec = spec
        self._say = say
        self._port: int | None = None
        self._health_path: str | None = None

    def prepare(self) -> None:
        """See that there is a command and a folder to run it in."""
        if not self._spec.entrypoint.strip():
            raise LaunchError("The model's metadata names no entrypoint.")
        if not self._folder.is_dir():
            raise LaunchError("The model's files are not there.")

    def banner(self) -> Sequence[str]:
        """Name the command: its own output may not."""
        return [
            "The model's own server; requests go to it as they are and are not batched.",
            f"Command: {self._spec.entrypoint[:2000]}",
        ]

    def command(self, ports: Ports) -> Command:
        """Give the command, run by the shell in the folder of the model's artifacts."""
        spec = self._spec
        line = localize(spec.entrypoint, host=spec.host, port=ports.http)
        return Command(
            arguments=[
                *("/bin/sh", "-c", 'cd "$1" && exec /bin/sh -c "$2"', "sh"),
                *(str(self._folder), line),
            ],
            environment={
                **server_environment(spec),
                **variables(host=spec.host, port=ports.http),
            },
            directory=spec.directory / "work",
        )

    def forget(self) -> None:
        """Where it listened is to be found anew."""
        self._port = self._health_path = None

    def is_vital(self, text: str) -> bool:
        """Exceptions and taken ports: they tell why it ended."""
        return _EXCEPTION.match(text) is not None or _IN_USE.search(text) is not None

    def read(self, line: LogLine) -> None:
        """Its lines prove nothing that matters."""

    def check(self, ports: Ports, *, timeout_s: float) -> Health:
        """Ask a health path, where it has one; else whether it answers at all."""
        port = self._port or self._find_port(ports)
        if port is None:
            return Health.SILENT
        health = self._ask_health(port, timeout_s=timeout_s)
        if health is Health.READY and self._port is None:
            self._settle(port, ports)
        return health

    def hang(self, ports: Ports, pid: int) -> str | None:
        """It has no more to show than its answer to `check`."""
        return None

    def is_proven(self) -> bool:
        """Its answer is enough."""
        return True

    def port(self, ports: Ports) -> int:
        """Where it was found to listen."""
        return self._port or ports.http

    def is_listening(self, ports: Ports, pid: int) -> bool:
        """`check` asks nobody else's port."""
        return self._port is not None

    def metrics_port(self, ports: Ports) -> int | None:
        """It has none that is known."""
        return None

    def evidence(self) -> tuple[Evidence, ...]:
        """Evidence is for Triton."""
        return ()

    def batching_seen(self, ports: Ports, *, timeout_s: float) -> BatchingSeen | None:
        """What it batches is its own affair."""
        return None

    def vital_children(self, pid: int) -> Sequence[int]:
        """What it starts is its own affair."""
        return ()

    def cause(self, lines: Sequence[str]) -> Cause | None:
        """Give the last exception it wrote, or that its port was taken."""
        if any(_IN_USE.search(line) for line in lines):
            if not is_free(self._spec.host, CONTRACT_PORT):
                return Cause(message=_PORT_IS_TAKEN, is_final=False)
            return Cause(message="The port that the command wants is taken.", is_final=False)
        for line in reversed(lines):
            if _EXCEPTION.match(line):
                return Cause(message=f"The model's command failed: {line[:500]}", is_final=True)
        return None

    def drain(self, ports: Ports, *, deadline: float) -> float:
        """Wait until nobody is connected: the gateway has a connection for each request."""
        time.sleep(min(QUIET_S, max(0.0, deadline - time.monotonic())))
        while time.monotonic() < deadline and processes.is_connected(self.port(ports)):
            time.sleep(POLL_S)
        return END_S

    def clean_up(self) -> None:
        """Nothing is left outside the folder."""

    @property
    def _folder(self) -> Path:
        """Where the command's relative paths begin: the model's artifacts, if it has any."""
        artifacts = self._spec.model_directory / ARTIFACTS
        return artifacts if artifacts.is_dir() else self._spec.model_directory

    def _find_port(self, ports: Ports) -> int | None:
        """The port that it was given, the contract's, or else the only one that it listens on."""
        found = processes.listening_ports(processes.marked(self._spec.directory))
        for port in (ports.http, CONTRACT_PORT):
            if port in found:
                return port
        return min(found) if len(found) == 1 else None

    def _settle(self, port: int, ports: Ports) -> None:
        self._port = port
        if port != ports.http:
            self._say(f"It listens on port {port} instead of the one in PORT, {ports.http}.")

    def _ask_health(self, port: int, *, timeout_s: float) -> Health:
        host = self._spec.host
        paths = HEALTH_PATHS if self._health_path is None else (self._health_path,)
        for path in paths:
            answer = None if path == INVOCATIONS else ask(host, port, path, timeout_s=timeout_s)
            if path == INVOCATIONS:
                return _connects(host, port, timeout_s=timeout_s)
            if answer is None:
                return Health.SILENT
            if 200 <= answer.status < 300:
                self._health_path = path
                return Health.READY
            if answer.status not in NOT_THERE:
                return Health.NOT_READY
        answer = ask(host, port, INVOCATIONS, timeout_s=timeout_s, post=True, json_body="{}")
        if answer is None:
            return Health.SILENT
        if answer.status in LOADING:
            return Health.NOT_READY
        self._health_path = INVOCATIONS  # asked once: the model is not to be asked for nothing
        return Health.READY


def _connects(host: str, port: int, *, timeout_s: float) -> Health:
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError:
        return Health.SILENT
    return Health.READY
