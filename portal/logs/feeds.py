"""Where lines come from: a replica's service log on disk, or a build log's text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from portal.endpoints import runtime
from portal.endpoints.models import Replica
from portal.endpoints.reading import line_prefix
from serving.spec import LogLine


class Feed(Protocol):
    """Numbered lines of one origin; numbers count from 1, the oldest may be gone."""

    @property
    def key(self) -> str:
        """Stands for the feed in cursors: a replica's id, or "build"."""

    @property
    def prefix(self) -> str:
        """What stands before each line in text, `[ts/g7zw9]`."""

    def after(self, number: int, limit: int) -> list[LogLine]:
        """The first `limit` lines whose number is greater."""

    def before(self, number: int, limit: int) -> list[LogLine]:
        """The last `limit` lines whose number is smaller."""

    def last_number(self) -> int:
        """The newest line's number, 0 without one."""


@dataclass(frozen=True, slots=True)
class ReplicaFeed:
    """A replica's service log."""

    replica: Replica

    @property
    def key(self) -> str:
        """As in `Feed`."""
        return self.replica.public_id

    @property
    def prefix(self) -> str:
        """As in `Feed`."""
        return line_prefix(self.replica)

    def after(self, number: int, limit: int) -> list[LogLine]:
        """As in `Feed`."""
        return runtime.read_logs(self.replica, after=number, limit=limit)

    def before(self, number: int, limit: int) -> list[LogLine]:
        """As in `Feed`."""
        return runtime.read_logs(self.replica, before=number, limit=limit)

    def last_number(self) -> int:
        """As in `Feed`."""
        return runtime.last_line_number(self.replica)


@dataclass(frozen=True, slots=True)
class BuildFeed:
    """A build log: one text, whose lines have no time of their own."""

    key: str
    prefix: str
    read_text: Callable[[], str]

    def after(self, number: int, limit: int) -> list[LogLine]:
        """As in `Feed`."""
        return self._lines()[max(number, 0) :][:limit]

    def before(self, number: int, limit: int) -> list[LogLine]:
        """As in `Feed`."""
        end = max(number - 1, 0)
        return self._lines()[max(end - limit, 0) : end]

    def last_number(self) -> int:
        """As in `Feed`."""
        return len(self._lines())

    def _lines(self) -> list[LogLine]:
        texts = self.read_text().split("\n")
        if texts[-1] == "":
            texts.pop()  # a line that is still being written counts, an empty end does not
        return [
            LogLine(number=number, at=0.0, source="server", text=text)
            for number, text in enumerate(texts, start=1)
        ]
