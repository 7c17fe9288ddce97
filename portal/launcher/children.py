"""Processes that `manage.py up` starts and keeps alive.

A child that ends is started again, with back-off. Children die with this process, however it
ends (`PR_SET_PDEATHSIG`), so that a killed launcher leaves nothing behind but replicas, which
are meant to outlive it and are adopted at the next start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serving.lifetime import die_with_parent

MAX_LOG_BYTES = 10 * 2**20
HEALTHY_AFTER_S = 30.0
MAX_BACK_OFF_S = 10.0


@dataclass(slots=True, kw_only=True)
class Child:
    """One program, its log file, and how often it had to be started again.

    Attributes:
        stop_signal: What asks it to end in good order.
        grace_s: How long it may take before it is killed.
    """

    name: str
    command: Sequence[str]
    log_file: Path
    pass_fds: tuple[int, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 15.0
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0
    start_after: float = 0.0

    def start(self) -> None:
        """Start it, its output going to its log file (kept small: the older half is `.1`)."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        if self.log_file.exists() and self.log_file.stat().st_size > MAX_LOG_BYTES:
            self.log_file.replace(self.log_file.with_suffix(".log.1"))
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self.pass_fds,
                env=os.environ | self.environment,
                start_new_session=True,  # Ctrl-C reaches the launcher alone: it stops them in order
                preexec_fn=die_with_parent(signal.SIGTERM),
            )
        self.started_at = time.monotonic()

    def look_after(self, say: Callable[[str], None]) -> None:
        """Start it again if it ended."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.start_after:
                self.start()
            return
        code = self.process.poll()
        if code is None:
            return
        self.failures = 1 if now - self.started_at > HEALTHY_AFTER_S else self.failures + 1
        wait_s = 0.0 if self.failures == 1 else min(MAX_BACK_OFF_S, 0.5 * 2**self.failures)
        reason = f"signal {-code}" if code < 0 else f"exit code {code}"
        again = "at once" if not wait_s else f"in {wait_s:.0f} s"
        say(f"{self.name} ended ({reason}); starting it again {again} (log: {self.log_file.name})")
        self.process, self.start_after = None, now + wait_s

    def ask_to_stop(self) -> None:
        """Send the stop signal."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(self.stop_signal)

    def wait(self) -> None:
        """Wait until it ended; kill it after the grace time."""
        if self.process is None:
            return
        try:
            self.process.wait(self.grace_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def stop_in_order(children: Sequence[Child]) -> None:
    """Ask all of them, then wait for each."""
    for child in children:
        child.ask_to_stop()
    for child in children:
        child.wait()
