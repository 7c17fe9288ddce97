"""What an address of the log viewer says: source, place, filter."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlencode

from django.http import QueryDict

from portal.logs.cursors import BadCursor, Cursor
from portal.logs.filters import BadPattern, Filter
from portal.logs.levels import Level
from portal.logs.reading import MAX_PAGE_LINES, PAGE_LINES
from portal.logs.sources import Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """An address, read; what was wrong with it stands in `problem`, as a sentence.

    Attributes:
        line: Of `choice.replica`, 0 for none; `line_to` is the end of a range.
        before: Read the lines before it.
        after: Read the lines after it.
        at: Read the lines around this time, seconds since 1970.
        mode: "only" leaves out what does not match the text, "highlight" marks what does.
    """

    choice: Choice
    line: int = 0
    line_to: int = 0
    before: Cursor | None = None
    after: Cursor | None = None
    at: float | None = None
    limit: int = PAGE_LINES
    filter: Filter = field(default_factory=Filter)
    pattern: str = ""  # as asked, also where it is no good
    mode: str = "only"
    problem: str = ""

    @classmethod
    def read(cls, data: QueryDict) -> LogQuery:
        """Read query parameters; what cannot be read is left out and told in `problem`."""
        choice = Choice(
            entity=data.get("entity", ""), replica=data.get("replica", ""), log=data.get("log", "")
        )
        problems: list[str] = []
        line, line_to = _lines(data.get("line", ""))
        return cls(
            choice=choice,
            line=line,
            line_to=line_to,
            before=_cursor(data.get("before"), problems),
            after=_cursor(data.get("after"), problems),
            at=_time(data.get("at", ""), problems),
            limit=_limit(data.get("limit", "")),
            filter=_filter(data, problems),
            pattern=data.get("q", ""),
            mode="highlight" if data.get("mode") == "highlight" else "only",
            problem=" ".join(problems),
        )

    @property
    def at_text(self) -> str:
        """`at` as a form's field takes it, UTC; empty without one."""
        if self.at is None:
            return ""
        return f"{datetime.fromtimestamp(self.at, UTC):%Y-%m-%dT%H:%M:%S}"

    def address(self, **more: str) -> str:
        """The query string for the same source and filter, with other parameters added."""
        parameters: list[tuple[str, str]] = list(self.choice.parameters.items())
        if self.filter.text:
            parameters.append(("q", self.filter.text))
            parameters += [("regex", "1")] if self.filter.is_regex else []
            parameters += [("case", "1")] if self.filter.match_case else []
            parameters += [("mode", self.mode)] if self.mode != "only" else []
        parameters += [("level", level.value) for level in Level if level in self.filter.levels]
        return urlencode([*parameters, *more.items()])


def _filter(data: QueryDict, problems: list[str]) -> Filter:
    levels = frozenset(Level(value) for value in data.getlist("level") if value in set(Level))
    try:
        return Filter(
            text=data.get("q", ""),
            is_regex=data.get("regex") == "1",
            match_case=data.get("case") == "1",
            levels=levels,
        )
    except BadPattern as exc:
        problems.append(str(exc))
        return Filter(levels=levels)


def _cursor(text: str | None, problems: list[str]) -> Cursor | None:
    if text is None:
        return None
    try:
        return Cursor.parse(text)
    except BadCursor as exc:
        problems.append(str(exc))
        return None


def _time(text: str, problems: list[str]) -> float | None:
    """A time of day and date in ISO 8601; UTC where it does not say its zone."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        problems.append(f"{text[:40]} is not a time. Give one such as 2026-01-31T14:05:00.")
        return None


def _lines(text: str) -> tuple[int, int]:
    """`120` or `120-140` as two numbers."""
    first, _, last = text.partition("-")
    numbers = [int(part) if part.isascii() and part.isdigit() else 0 for part in (first, last)]
    return numbers[0], max(numbers) if numbers[0] else 0


def _limit(text: str) -> int:
    return (
        min(max(int(text), 1), MAX_PAGE_LINES) if text.isascii() and text.isdigit() else PAGE_LINES
    )
