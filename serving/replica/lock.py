"""One supervisor for each replica's folder.

A POSIX record lock: it ends with its process, and others can ask who holds it without taking it.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

LOCK_FILE = "supervisor.lock"
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux


class AlreadyRunning(Exception):
    """Another supervisor looks after this folder."""


class SupervisorLock:
    """Held until the process ends; never close or open the file again in the same process."""

    def __init__(self, directory: Path) -> None:
        self._file = (directory / LOCK_FILE).open("a+")
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            self._file.close()
            raise AlreadyRunning(
                f"Another supervisor (process {supervisor_pid(directory)}) runs this replica."
            ) from exc


def supervisor_pid(directory: Path) -> int | None:
    """Give the process id of the folder's living supervisor, None without one."""
    try:
        file = (directory / LOCK_FILE).open("r")
    except OSError:
        return None
    with file:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return None if answer[0] == fcntl.F_UNLCK else answer[4]
