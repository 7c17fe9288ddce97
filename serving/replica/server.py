"""What the supervisor knows about a kind of server; each backend has one `Server`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from serving.replica.ports import Ports
from serving.spec import Backend, BatchingSeen, Evidence, LogLine, ReplicaSpec

Say = Callable[[str], LogLine | None]
"""Writes a line of the supervisor's own into the log."""


class Health(StrEnum):
    """What a server answers when asked whether it is ready."""

    SILENT = "SILENT"  # nothing: it does not listen yet, or hangs
    NOT_READY = "NOT_READY"
    READY = "READY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How to start a server."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a server ended, in its own words; `is_final` when starting it again would not help."""

    message: str
    is_final: bool


class Server(Protocol):
    """One backend's server, from its files to its last breath.

    `read` is called from another thread than the rest. `patience_s` is how long it may fail to
    answer, once READY, before it is taken for hung.
    """

    patience_s: float

    def prepare(self) -> None:
        """Lay out files and try what can be tried; LaunchError says what is missing."""

    def banner(self) -> Sequence[str]:
        """Lines to write into the log before each start."""
        ...

    def command(self, ports: Ports) -> Command:
        """Give the command that starts it."""
        ...

    def forget(self) -> None:
        """It is about to be started (again): what was seen of it counts no longer."""

    def is_vital(self, text: str) -> bool:
        """Whether a line of its output must be kept in any case; asked often, so quick."""
        ...

    def read(self, line: LogLine) -> None:
        """Take notice of a line of its output."""

    def check(self, ports: Ports, *, timeout_s: float) -> Health:
        """Ask it whether it is ready."""
        ...

    def hang(self, ports: Ports, pid: int) -> str | None:
        """What shows that it no longer works though it answers; asked again and again once READY.

        Args:
            ports: Where it listens.
            pid: Of its process.
        """
        ...

    def is_proven(self) -> bool:
        """Whether all its evidence was seen."""
        ...

    def port(self, ports: Ports) -> int:
        """The port of its HTTP server."""
        ...

    def is_listening(self, ports: Ports, pid: int) -> bool:
        """Whether it is this server, whose process is `pid`, that listens there."""
        ...

    def metrics_port(self, ports: Ports) -> int | None:
        """The port of its Prometheus metrics."""
        ...

    def evidence(self) -> tuple[Evidence, ...]:
        """What was seen of it since its last start."""
        ...

    def batching_seen(self, ports: Ports, *, timeout_s: float) -> BatchingSeen | None:
        """Ask what it batched; None when it does not batch or does not say."""
        ...

    def vital_children(self, pid: int) -> Sequence[int]:
        """Processes below it without which it only seems to serve."""
        ...

    def cause(self, lines: Sequence[str]) -> Cause | None:
        """What its last lines give as the reason for its end, None where they give none."""
        ...

    def drain(self, ports: Ports, *, deadline: float) -> float:
        """Wait until it has answered what it was asked, or the (monotonic) deadline passes.

        Returns:
            How many seconds it may then take to end by itself.
        """
        ...

    def clean_up(self) -> None:
        """Remove what it left outside the replica's folder."""


def make_server(spec: ReplicaSpec, say: Say) -> Server:
    """Give the server of the spec's backend."""
    if spec.backend is Backend.TRITON:
        from serving.triton.server import TritonServer

        return TritonServer(spec, say)
    if spec.backend is Backend.ENTRYPOINT:
        from serving.entrypoint.server import EntrypointServer

        return EntrypointServer(spec, say)
    from serving.standard.server import StandardServer

    return StandardServer(spec)
