"""When a server that ended is started again."""

from __future__ import annotations

import signal
from dataclasses import dataclass

DELAYS_S = (0.2, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Before each further start; the first is quick, since most ends are accidents."""

FORGIVEN_AFTER_S = 60.0
"""A server that was READY this long starts with a clean record."""

MOST_FAILED_STARTS = 3
"""A replica that was never READY is given up after so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a server no longer serves; `is_final` when another start would end the same way."""

    message: str
    exit_code: int | None = None
    is_final: bool = False


class RestartPolicy:
    """Remembers failures; a replica that has been READY once is never given up."""

    def __init__(self) -> None:
        self._failures = 0
        self._was_ready = False

    def delay_after(self, failure: Failure, *, ready_for_s: float | None) -> float | None:
        """Give the seconds to wait before the next start, None to give up.

        Args:
            failure: What ended the server.
            ready_for_s: How long it had been READY, None if it never was.
        """
        if ready_for_s is not None:
            self._was_ready = True
            if ready_for_s >= FORGIVEN_AFTER_S:
                self._failures = 0
        self._failures += 1
        if not self._was_ready and (failure.is_final or self._failures >= MOST_FAILED_STARTS):
            return None
        return DELAYS_S[min(self._failures, len(DELAYS_S)) - 1]


def describe_exit(exit_code: int) -> str:
    """Say what an exit code means."""
    if exit_code == 128 + signal.SIGKILL:
        return "The server was killed (exit code 137); most often the machine is out of memory."
    if exit_code > 128:
        try:
            name = signal.Signals(exit_code - 128).name
        except ValueError:
            name = f"signal {exit_code - 128}"
        return f"The server ended by {name} (exit code {exit_code})."
    return f"The server ended with exit code {exit_code}."
