"""Tie a child process's life to its parent's (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1

# PyDLL keeps the interpreter's lock: between fork and exec nobody could give it back.
_prctl = ctypes.PyDLL(None).prctl


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """A `preexec_fn` for `Popen`: the child gets `number` when its parent dies, however it does.

    The kernel ties that to the thread that starts the child, so that thread must outlive it.
    """
    parent = os.getpid()

    def tie() -> None:
        _prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return tie
