"""Where replicas run, and how they are looked at. `serving.runtime.processes` is this machine."""

from __future__ import annotations

from typing import Protocol

from serving.runtime.logs import last_line_number, read_logs
from serving.spec import ReplicaSpec, ReplicaStatus

__all__ = ["Runtime", "last_line_number", "read_logs"]


class Runtime(Protocol):
    """Starts, watches and ends replicas. Every call may be made twice without harm."""

    def launch(self, spec: ReplicaSpec) -> None:
        """Start a replica that outlives this process; LaunchError if it cannot be started."""

    def status(self, replica_id: str) -> ReplicaStatus | None:
        """Give what a replica last said, corrected if it is gone; None if it never spoke."""
        ...

    def stop(self, replica_id: str) -> None:
        """Ask a replica to drain and stop; returns at once."""

    def kill(self, replica_id: str) -> None:
        """End a replica and its server now."""

    def running(self) -> list[str]:
        """Give the ids of the replicas that run, in whatever state."""
        ...

    def remove(self, replica_id: str) -> None:
        """End a replica, and delete its folder with its logs."""
