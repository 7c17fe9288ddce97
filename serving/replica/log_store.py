"""Write a replica's service log: numbered, bounded, and never in the server's way."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from serving.replica.log_format import (
    SHOAL,
    decode,
    encode,
    logs_directory,
    segment_path,
    segments,
)
from serving.spec import LogLine

SEGMENT_BYTES = 2**20
KEPT_SEGMENTS = 64


class LogStore:
    """The only writer of one replica's log; safe between threads.

    Numbers go on where an earlier supervisor stopped. When the disk refuses lines, they are lost
    and counted, and a line says so once there is room again.
    """

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        kept_segments: int = KEPT_SEGMENTS,
    ) -> None:
        self._logs = logs_directory(directory)
        self._segment_bytes = segment_bytes
        self._kept_segments = kept_segments
        self._lock = threading.Lock()
        self._lost_lines = 0
        self._logs.mkdir(parents=True, exist_ok=True)
        self._next_number, self._file, self._size = self._resume()

    def append(self, source: str, texts: Sequence[str]) -> list[LogLine]:
        """Store lines and give them their numbers; empty when the disk refuses them."""
        with self._lock:
            if self._size >= self._segment_bytes:
                self._rotate()
            lines = self._write(source, texts)
            if lines and self._lost_lines:
                lost, self._lost_lines = self._lost_lines, 0
                self._write(SHOAL, [f"{lost} lines were lost: the disk took no more."])
            return lines

    def say(self, text: str) -> LogLine | None:
        """Store a line of the supervisor's own; None when the disk refuses it."""
        lines = self.append(SHOAL, [" ".join(text.split("\n"))])
        return lines[0] if lines else None

    def _write(self, source: str, texts: Sequence[str]) -> list[LogLine]:
        at = time.time()
        lines = [
            LogLine(number=self._next_number + i, at=at, source=source, text=text)
            for i, text in enumerate(texts)
        ]
        data = b"".join(map(encode, lines))
        try:
            written = os.write(self._file, data)
            if written < len(data):
                raise OSError("the disk is full")
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)  # no half line for a reader to trip over
            self._lost_lines += len(lines)
            return []
        self._size += written
        self._next_number += len(lines)
        return lines

    def _resume(self) -> tuple[int, int, int]:
        """Give (next number, open file, its size), without the half line of a killed writer."""
        found = segments(self._logs)
        if not found:
            return 1, self._open(1), 0
        first, path = found[-1]
        data = path.read_bytes()
        size = data.rfind(b"\n") + 1
        file = self._open(first)
        os.ftruncate(file, size)
        lines = data[:size].split(b"\n")[:-1]
        return (decode(lines[-1]).number + 1 if lines else first), file, size

    def _open(self, first_number: int) -> int:
        path = segment_path(self._logs, first_number)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _rotate(self) -> None:
        try:
            file = self._open(self._next_number)
        except OSError:
            return  # the segment grows on; the next line tries again
        os.close(self._file)
        self._file, self._size = file, 0
        old = segments(self._logs)[: -self._kept_segments]
        for _, path in old:
            path.unlink(missing_ok=True)
        if old:
            kept = self._segment_bytes * self._kept_segments // 2**20
            first = segments(self._logs)[0][0]
            self._write(
                SHOAL, [f"Lines before {first} were removed: the log keeps its last {kept} MiB."]
            )
