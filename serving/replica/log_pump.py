"""Move a server's output into the log without ever making the server wait."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from serving.replica.log_format import SERVER
from serving.replica.log_lines import Allowance, LineSplitter
from serving.replica.log_store import LogStore
from serving.replica.masking import mask_of
from serving.spec import LogLine

log = logging.getLogger(__name__)

CHUNK_BYTES = 2**18
PIPE_BYTES = 2**20  # what the server can write while this process is not looking


class LogPump(threading.Thread):
    """Reads until the output ends, which is when the last process that holds it is gone.

    What a server writes beyond the allowance is read and left out, but for lines that `is_vital`
    picks; a line tells how much. Known secrets are masked.
    """

    def __init__(
        self,
        output: IO[bytes],
        store: LogStore,
        on_lines: Callable[[Sequence[LogLine]], None],
        *,
        is_vital: Callable[[str], bool],
        secrets: Sequence[str] = (),
        allowance: Allowance | None = None,
    ) -> None:
        super().__init__(name="log-pump", daemon=True)
        self._output = output
        self._store = store
        self._on_lines = on_lines
        self._is_vital = is_vital
        self._mask = mask_of(secrets)
        self._splitter = LineSplitter()
        self._allowance = allowance or Allowance()
        self._left_out = 0
        with contextlib.suppress(OSError):  # beyond the system's limit for one user
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def run(self) -> None:
        """Pump until the end."""
        with self._output:
            while data := os.read(self._output.fileno(), CHUNK_BYTES):
                self._keep(self._splitter.feed(data), len(data))
        self._keep(self._splitter.finish(), 0)
        self._tell_left_out()

    def _keep(self, lines: list[str], size: int) -> None:
        if not lines:
            return
        if not self._allowance.takes(size, now=time.monotonic()):
            vital = [line for line in lines if self._is_vital(line)]
            self._left_out += len(lines) - len(vital)
            lines = vital
        else:
            self._tell_left_out()
        if not lines:
            return
        try:
            self._on_lines(self._store.append(SERVER, [self._mask(line) for line in lines]))
        except Exception:  # the pump must go on, whatever a line does to its readers
            log.exception("lines were read but not understood")

    def _tell_left_out(self) -> None:
        if self._left_out:
            self._store.say(f"{self._left_out} lines were left out: they came too fast to keep.")
            self._left_out = 0
