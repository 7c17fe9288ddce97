"""Read a replica's service log while its supervisor writes and rotates it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from serving.replica.log_format import decode, logs_directory, segments
from serving.spec import LogLine

TAIL_BYTES = 2**16


def read_logs(
    directory: Path, *, after: int | None = None, before: int | None = None, limit: int = 500
) -> list[LogLine]:
    """Give lines of the log of the replica in `directory`, ordered by number.

    Args:
        directory: The replica's folder.
        after: Only lines with greater numbers, the first `limit` of them.
        before: Only lines with smaller numbers, the last `limit` of them.
        limit: The most lines to give. Without `after` and `before` they are the last ones.
    """
    logs = logs_directory(directory)
    if after is not None:
        lines = _following(logs, after, limit)
        return [line for line in lines if before is None or line.number < before]
    return _preceding(logs, before, limit)


def last_line_number(directory: Path) -> int:
    """Give the number of the newest line, 0 where there is none."""
    for first, path in reversed(segments(logs_directory(directory))):
        tail = _tail(path)
        if tail is not None:
            return decode(tail[-1]).number if tail else first - 1
    return 0


def _following(logs: Path, after: int, limit: int) -> list[LogLine]:
    found = segments(logs)
    # Start with the last segment that may hold line after + 1, or the oldest one kept.
    start = max((i for i, (first, _) in enumerate(found) if first <= after + 1), default=0)
    lines: list[LogLine] = []
    for position in range(start, len(found)):
        is_newest = position == len(found) - 1
        lines += _after(found[position][1], after, limit - len(lines), is_newest=is_newest)
        if len(lines) >= limit:
            break
    return lines


def _after(path: Path, after: int, limit: int, *, is_newest: bool) -> list[LogLine]:
    """A follower that is nearly up to date reads the end of the newest segment only."""
    lines = _tail(path) if is_newest else None
    if not lines or decode(lines[0]).number > after + 1:
        lines = _whole(path)
    if not lines:
        return []
    skipped = max(0, after + 1 - decode(lines[0]).number)
    return [decode(line) for line in lines[skipped : skipped + limit]]


def _preceding(logs: Path, before: int | None, limit: int) -> list[LogLine]:
    lines: list[LogLine] = []
    for segment in _newest_first(logs, before):
        kept = segment
        if before is not None and segment:
            kept = segment[: max(0, before - decode(segment[0]).number)]
        wanted = limit - len(lines)
        lines = [decode(line) for line in kept[-wanted:]] + lines
        if len(lines) >= limit:
            break
    return lines


def _newest_first(logs: Path, before: int | None) -> Iterator[list[bytes]]:
    for first, path in reversed(segments(logs)):
        if before is None or first < before:
            yield _whole(path)


def _whole(path: Path) -> list[bytes]:
    """All complete lines; none when the segment was removed meanwhile."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return data.split(b"\n")[:-1]


def _tail(path: Path) -> list[bytes] | None:
    """The complete lines of the file's end; None when it is gone or one line fills it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = file.seek(max(0, size - TAIL_BYTES))
            data = file.read()
    except FileNotFoundError:
        return None
    lines = data.split(b"\n")[:-1]
    return lines if start == 0 else lines[1:] or None
