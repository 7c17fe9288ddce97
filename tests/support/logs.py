"""Service logs for tests, written by the supervisor's own writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from serving.replica.log_format import SERVER, SHOAL, encode, logs_directory, segment_path
from serving.replica.log_store import LogStore
from serving.spec import LogLine

TRITON_START = [
    (SHOAL, "Triton Inference Server 2.51.0 starts for model main.default.model0 version 1."),
    (SERVER, 'I1130 23:30:10.193000 1 model_lifecycle.cc:472] "loading: model:1"'),
    (
        SERVER,
        "I1130 23:30:10.454000 1 python_be.cc:2249] "
        '"TRITONBACKEND_ModelInstanceInitialize: model_0_0 (CPU device 0)"',
    ),
    (SERVER, "I1130 23:30:10.534000 1 model_lifecycle.cc:839] \"successfully loaded 'model'\""),
    (SERVER, "I1130 23:30:10.534100 1 server.cc:674] "),
    (SERVER, "+-------+---------+--------+"),
    (SERVER, "| Model | Version | Status |"),
    (SERVER, "+-------+---------+--------+"),
    (SERVER, "| model | 1       | READY  |"),
    (SERVER, "+-------+---------+--------+"),
    (SERVER, ""),
    (
        SERVER,
        'I1130 23:30:10.551000 1 http_server.cc:4713] "Started HTTPService at 127.0.0.1:8000"',
    ),
]
"""What a replica on Triton writes at a good start, shortened."""


def write_log(directory: Path, lines: Sequence[tuple[str, str]]) -> LogStore:
    """Write (source, text) lines to the log of the replica in `directory`; gives the open log."""
    store = LogStore(directory)
    for source, text in lines:
        store.append(source, [text])
    return store


def write_lines(directory: Path, count: int, text: str = "line {}") -> LogStore:
    """Write `count` numbered lines of the server's."""
    store = LogStore(directory)
    store.append(SERVER, [text.format(number) for number in range(1, count + 1)])
    return store


def write_timed(directory: Path, times: Sequence[float], first: int = 1) -> None:
    """Write a line "at <time>" for each of `times` as if it had been written then."""
    logs = logs_directory(directory)
    logs.mkdir(parents=True, exist_ok=True)
    lines = [
        LogLine(number=number, at=at, source=SERVER, text=f"INFO: at {at:.0f}")
        for number, at in enumerate(times, start=first)
    ]
    segment_path(logs, first).write_bytes(b"".join(map(encode, lines)))
