"""One life of a server: from its start until nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence

from serving.replica import processes
from serving.replica.log_pump import LogPump
from serving.replica.log_store import LogStore
from serving.replica.ports import Ports
from serving.replica.restarts import Failure, describe_exit
from serving.replica.server import Server
from serving.spec import LogLine

RECENT_LINES = 500
LAST_OUTPUT_S = 3.0
LOOK_S = 1.0
STARTING_GRACE_S = 3.0
"""A server that starts may report a lost child itself, with the reason, and then ends."""

STOPPED_S = 5.0
"""A process that was stopped (SIGSTOP) for so long is not about to be told to go on."""

STALLED_S = 90.0
IDLE_SHARE = 0.02
"""Of one processor: a server that loads a model uses more, a few threads that wake up do not."""

STALLED = "The server did not use the processor for {:.0f} s while it loaded the model: it hangs."
STOPPED = "The server was stopped by a signal and did not go on; it would answer nobody."
CHILD_LOST = "The model's process died; the server would answer every request with an error."


class StallWatch:
    """Tells a load that hangs from one that is slow: Triton's instances may wait for each other."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._used_s = 0.0

    def idle_s(self, used_s: float, now: float) -> float:
        """For how long nothing was done.

        Args:
            used_s: Processor seconds of all its processes until now.
            now: Monotonic seconds.
        """
        since = self._since
        if since is None or abs(used_s - self._used_s) > IDLE_SHARE * (now - since) + IDLE_SHARE:
            self._since, self._used_s = now, used_s
            return 0.0
        return now - since


class Life:
    """A running server; ended by `end`, which must be called."""

    def __init__(
        self, server: Server, ports: Ports, store: LogStore, secrets: Sequence[str]
    ) -> None:
        self._server = server
        self._recent: deque[str] = deque(maxlen=RECENT_LINES)
        self._children: set[int] = set()
        self._look_at = 0.0
        self._lost_at: float | None = None
        self._stopped_at: float | None = None
        self._stall = StallWatch()
        self._idle_s = 0.0
        self.started_at = time.monotonic()
        self.ready_at: float | None = None
        self.ports = ports
        server.forget()
        command = server.command(ports)
        command.directory.mkdir(exist_ok=True)
        self.process: subprocess.Popen[bytes] = processes.spawn(
            command.arguments, environment=command.environment, directory=command.directory
        )
        self._directory = command.directory.parent
        assert self.process.stdout is not None  # noqa: S101 - spawn always gives the pipe
        self._pump = LogPump(
            self.process.stdout, store, self._read, is_vital=server.is_vital, secrets=secrets
        )
        self._pump.start()

    @property
    def ready_for_s(self) -> float | None:
        """How long it has been READY, None if it never was."""
        return None if self.ready_at is None else time.monotonic() - self.ready_at

    def become_ready(self) -> None:
        """It serves: from now on a lost child counts at once."""
        self.ready_at = time.monotonic()
        self._children = set(self._server.vital_children(self.process.pid))

    def failure(self) -> Failure | None:
        """Whether it has ended, or only seems to serve."""
        code = processes.exit_code(self.process)
        if code is not None:
            return self._failure_of_exit(code)
        if self._has_lost_a_child():
            return Failure(message=CHILD_LOST)
        if self._is_stopped():
            return Failure(message=STOPPED)
        is_stalled = self.ready_at is None and self._idle_s >= STALLED_S
        return Failure(message=STALLED.format(self._idle_s)) if is_stalled else None

    def is_listening(self) -> bool:
        """Whether it is this server that listens on its port."""
        return self._server.is_listening(self.ports, self.process.pid)

    def is_port_taken(self) -> bool:
        """Whether its last lines complain of a port."""
        return any("already in use" in line.lower() for line in list(self._recent))

    def terminate(self, grace_s: float) -> bool:
        """Ask it to end, and wait for so long; whether it did."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, grace_s))
        return self.process.returncode is not None

    def end(self) -> int | None:
        """Kill what is left of it and take its last output; gives its exit code."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(processes.END_TIMEOUT_S)
        processes.end_marked(self._directory)
        self._pump.join(LAST_OUTPUT_S)
        return processes.exit_code(self.process)

    def _read(self, lines: Sequence[LogLine]) -> None:
        for line in lines:
            self._recent.append(line.text)
            self._server.read(line)

    def _failure_of_exit(self, code: int) -> Failure:
        processes.end_marked(self._directory)  # else a child could keep the output open
        self._pump.join(LAST_OUTPUT_S)
        # Once it was ready, exceptions in its output are the callers' affair.
        cause = self._server.cause(list(self._recent)) if self.ready_at is None else None
        if cause is None:
            return Failure(message=describe_exit(code), exit_code=code)
        return Failure(message=cause.message, exit_code=code, is_final=cause.is_final)

    def _is_stopped(self) -> bool:
        now = time.monotonic()
        if not any(processes.is_stopped(pid) for pid in (self.process.pid, *self._children)):
            self._stopped_at = None
            return False
        if self._stopped_at is None:
            self._stopped_at = now
        return now - self._stopped_at >= STOPPED_S

    def _has_lost_a_child(self) -> bool:
        now = time.monotonic()
        is_ready = self.ready_at is not None
        if now >= self._look_at and not is_ready:
            self._children.update(self._server.vital_children(self.process.pid))
            self._idle_s = self._stall.idle_s(processes.cpu_seconds(self.process.pid), now)
            self._look_at = now + LOOK_S
        if not any(processes.is_dead(child) for child in self._children):
            return False
        if self._lost_at is None:
            self._lost_at = now
        return is_ready or now - self._lost_at >= STARTING_GRACE_S
