"""Cut a server's output into lines that are fit to keep."""

from __future__ import annotations

import re

LONGEST_LINE_BYTES = 16 * 2**10
LEFT_OUT = " more bytes of this line were left out"
BYTES_PER_S = 2 * 2**20
BURST_BYTES = 8 * 2**20

_LINE_END = re.compile(rb"\r\n|\n|\r")


class LineSplitter:
    """Takes bytes as they come, gives whole lines; holds at most one line's worth of bytes.

    A carriage return ends a line, so that progress bars show as their steps.
    """

    def __init__(self, *, longest_bytes: int = LONGEST_LINE_BYTES) -> None:
        self._longest = longest_bytes
        self._rest = b""
        self._cut = 0  # bytes of the unfinished line that were left out

    def feed(self, data: bytes) -> list[str]:
        """Give the lines that `data` completes."""
        # "\r" at the end may be half of "\r\n": it waits for the next byte.
        data = self._rest + data
        held = b"\r" if data.endswith(b"\r") else b""
        *whole, rest = _LINE_END.split(data[: len(data) - len(held)])
        lines = [self._line(line) for line in whole]
        if len(rest) > self._longest:
            self._cut += len(rest) - self._longest
            rest = rest[: self._longest]
        self._rest = rest + held
        return lines

    def finish(self) -> list[str]:
        """Give what is left when the output has ended."""
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        return [self._line(rest)] if rest or self._cut else []

    def _line(self, data: bytes) -> str:
        cut, self._cut = self._cut + max(0, len(data) - self._longest), 0
        text = data[: self._longest].decode("utf-8", errors="replace").replace("\0", "")
        return f"{text} [{cut}{LEFT_OUT}]" if cut else text


class Allowance:
    """How much output may be kept: a burst, then so much a second. The clock is passed in."""

    def __init__(self, *, bytes_per_s: float = BYTES_PER_S, burst_bytes: float = BURST_BYTES):
        self._rate = bytes_per_s
        self._burst = burst_bytes
        self._left = burst_bytes
        self._at: float | None = None

    def takes(self, size: int, *, now: float) -> bool:
        """Whether `size` more bytes are within it; then they are counted."""
        if self._at is not None:
            self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if size > self._left:
            return False
        self._left -= size
        return True
