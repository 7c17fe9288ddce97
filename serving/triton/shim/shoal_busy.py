"""Tells the supervisor since when this process has worked on a batch, at the cost of a write.

The file `busy-<instance>` in the server's working folder holds 16 bytes: the monotonic second at
which the batch was begun (a double, 0 while there is none) and the process's number. A model that
hangs leaves its second there for ever; Triton itself goes on to say that it is ready.

Copied beside `model.py`, with the same restrictions.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

FORM = struct.Struct("<dq")


class BusyMark:
    """One instance's mark; `with` it around each batch."""

    def __init__(self, name):
        with Path("busy-" + name).open("wb+") as file:
            file.write(FORM.pack(0.0, os.getpid()))
            file.flush()
            self._map = mmap.mmap(file.fileno(), FORM.size)

    def __enter__(self):
        """A batch begins."""
        struct.pack_into("<d", self._map, 0, time.monotonic())

    def __exit__(self, *failure):
        """It is done, one way or the other."""
        struct.pack_into("<d", self._map, 0, 0.0)
