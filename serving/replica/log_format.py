"""How a replica's service log lies on disk.

`logs/` holds segments named by the number of their first line. A line is `number, time, source,
text`, separated by tabs and ended by one newline; numbers in a segment have no gaps.
"""

from __future__ import annotations

from pathlib import Path

from serving.spec import LogLine

SERVER = "server"
SHOAL = "shoal"


def logs_directory(directory: Path) -> Path:
    """Where a replica's folder keeps its log."""
    return directory / "logs"


def segment_path(logs: Path, first_number: int) -> Path:
    """The segment that starts with line `first_number`."""
    return logs / f"{first_number:012d}.log"


def segments(logs: Path) -> list[tuple[int, Path]]:
    """Give (first number, path) of each segment, oldest first."""
    try:
        names = [entry.name for entry in logs.iterdir() if entry.suffix == ".log"]
    except FileNotFoundError:
        return []
    return sorted((int(name[:-4]), logs / name) for name in names if name[:-4].isdigit())


def encode(line: LogLine) -> bytes:
    """One line's bytes; its text must hold no newline."""
    text = f"{line.number}\t{line.at:.3f}\t{line.source}\t{line.text}\n"
    return text.encode("utf-8", errors="replace")


def decode(data: bytes) -> LogLine:
    """Read `encode`'s bytes, without the newline."""
    number, at, source, text = data.split(b"\t", 3)
    return LogLine(
        number=int(number), at=float(at), source=source.decode(), text=text.decode(errors="replace")
    )
