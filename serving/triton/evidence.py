"""What shows that Triton is attached: its own start-up lines and its own answers.

Message texts are matched, never `file:line`, which differ between releases.
"""

from __future__ import annotations

import re
import threading

from serving.spec import (
    Backend,
    Evidence,
    EvidenceKind,
    LogLine,
    ReplicaState,
    ReplicaStatus,
)
from serving.triton.config import MODEL

LINES = {
    EvidenceKind.MODEL_LOADED: re.compile(rf"successfully loaded '{MODEL}'"),
    EvidenceKind.MODEL_READY_ROW: re.compile(rf"^\|\s*{MODEL}\s*\|\s*1\s*\|\s*READY\s*\|"),
    EvidenceKind.HTTP_SERVICE: re.compile(r"Started HTTPService at \S+:\d+"),
}


def is_triton_active(status: ReplicaStatus) -> bool:
    """Whether the replica serves and has shown everything that proves Triton is attached."""
    return (
        status.state is ReplicaState.READY
        and status.backend is Backend.TRITON
        and {e.kind for e in status.evidence} == set(EvidenceKind)
    )


class EvidenceCollector:
    """Keeps the first sight of each kind since the server's last start; safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[EvidenceKind, Evidence] = {}

    def forget(self) -> None:
        """Start anew: the server is started again."""
        with self._lock:
            self._found.clear()

    def read(self, line: LogLine) -> None:
        """Take what the server's line shows."""
        for kind, pattern in LINES.items():
            if pattern.search(line.text):
                self._add(kind, line)

    def answer(self, kind: EvidenceKind, line: LogLine) -> None:
        """Take the server's own answer, which `line` of the log repeats."""
        self._add(kind, line)

    def has(self, *kinds: EvidenceKind) -> bool:
        """Whether all of these were seen."""
        with self._lock:
            return all(kind in self._found for kind in kinds)

    def found(self) -> tuple[Evidence, ...]:
        """Give everything seen, in the order of `EvidenceKind`."""
        with self._lock:
            return tuple(self._found[kind] for kind in EvidenceKind if kind in self._found)

    def _add(self, kind: EvidenceKind, line: LogLine) -> None:
        with self._lock:
            self._found.setdefault(
                kind, Evidence(kind=kind, text=line.text, line=line.number, at=line.at)
            )
