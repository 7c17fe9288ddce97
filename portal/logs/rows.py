"""A log line as it is shown, sent to the browser and written as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TypedDict

from portal.logs.ansi import Span, read_ansi
from portal.logs.levels import Level, LevelReader, own_level
from serving.spec import LogLine

SUPERVISOR = "shoal"
"""`LogLine.source` of the supervisor's own words."""


class RowJson(TypedDict, total=False):
    """A row on the wire; short keys, as a page carries thousands."""

    k: str  # feed: replica id or "build"
    n: int  # number
    p: str  # prefix
    at: int | None  # ms since 1970
    l: str  # level  # noqa: E741 - a key of the wire, see above
    h: int  # 1: begins an entry; 0: belongs to the one before
    s: int  # 1: the supervisor's own words
    t: str  # text
    a: list[tuple[int, int, str]]  # looks, where the text has any
    m: list[tuple[int, int]]  # matches of the server's filter


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line; `matches` are the characters that a filter found."""

    key: str
    prefix: str
    number: int
    at: float | None
    is_own: bool  # the supervisor's words
    level: Level
    is_head: bool
    text: str
    spans: tuple[Span, ...] = ()
    matches: tuple[tuple[int, int], ...] = ()

    @property
    def when(self) -> datetime | None:
        """The time in UTC."""
        return None if self.at is None else datetime.fromtimestamp(self.at, UTC)

    @property
    def day(self) -> str:
        """`09-11`, as in Triton's own stamps but readable."""
        return f"{self.when:%m-%d}" if self.when else ""

    @property
    def clock(self) -> str:
        """`22:43:22.356`."""
        return f"{self.when:%H:%M:%S}.{self.when.microsecond // 1000:03}" if self.when else ""

    @property
    def stamp(self) -> str:
        """The whole time, to the millisecond, for text files."""
        return f"{self.when.isoformat(timespec='milliseconds')[:-6]}Z" if self.when else ""

    def as_text(self, *, with_time: bool = False) -> str:
        """As downloads, copies and the API have it: as the server wrote it, with its prefix."""
        words = [self.stamp] if with_time and self.stamp else []
        words += [self.prefix] if self.prefix else []
        words += ["[shoal]"] if self.is_own else []
        return " ".join([*words, self.text])

    def as_json(self) -> RowJson:
        """For the browser."""
        found: RowJson = {
            "k": self.key,
            "n": self.number,
            "p": self.prefix,
            "at": None if self.at is None else int(self.at * 1000),
            "l": self.level.value,
            "h": int(self.is_head),
            "s": int(self.is_own),
            "t": self.text,
        }
        if self.spans:
            found["a"] = [(*self._for_browser(start, end), look) for start, end, look in self.spans]
        if self.matches:
            found["m"] = [self._for_browser(start, end) for start, end in self.matches]
        return found

    def _for_browser(self, start: int, end: int) -> tuple[int, int]:
        """JavaScript counts UTF-16 units, so each character beyond the BMP counts twice."""
        if self.text.isascii():
            return start, end
        units = [
            len(self.text[:at].encode("utf-16-le", "surrogatepass")) // 2 for at in (start, end)
        ]
        return units[0], units[1]

    def pieces(self) -> Iterator[tuple[str, str]]:
        """(classes, text) in order, cut where a look or a match begins or ends."""
        edges = {0, len(self.text)}
        edges.update(edge for span in self.spans for edge in span[:2])
        edges.update(edge for match in self.matches for edge in match)
        cuts = sorted(edges)
        for start, end in pairwise(cuts):
            classes = [span.classes for span in self.spans if span.start <= start < span.end]
            if any(first <= start < last for first, last in self.matches):
                classes.append("log-match")
            yield " ".join(classes), self.text[start:end]


def read_rows(key: str, prefix: str, lines: Iterable[LogLine], reader: LevelReader) -> list[Row]:
    """One feed's lines as rows; `reader` knows what came before them."""
    rows = []
    for line in lines:
        text, spans = read_ansi(line.text)
        is_own = line.source == SUPERVISOR
        # The supervisor speaks between the server's lines; what those belong to stays as it is.
        level, is_head = (own_level(text), True) if is_own else reader.read(text)
        rows.append(
            Row(
                key=key,
                prefix=prefix,
                number=line.number,
                at=line.at or None,
                is_own=is_own,
                level=level,
                is_head=is_head,
                text=text,
                spans=spans,
            )
        )
    return rows
