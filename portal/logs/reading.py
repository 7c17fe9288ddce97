"""Pages of one or several feeds, merged by time.

Within a feed the numbers give the order, whatever a clock that was set back says; between feeds the
time does.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from portal.logs.cursors import Cursor
from portal.logs.feeds import Feed
from portal.logs.filters import Filter
from portal.logs.levels import LevelReader
from portal.logs.rows import Row, read_rows
from serving.spec import LogLine

PAGE_LINES = 500
MAX_PAGE_LINES = 2000
CONTEXT_LINES = 100  # read before a page, to know to which entry its first lines belong
MAX_LOOKED_LINES = 20_000  # that one filtered page goes through
MAX_LOOKING_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Rows in their order, and where it goes on.

    Attributes:
        first: Older lines are before this.
        last: Newer lines are after this.
        looked: Lines that were read for it; more than `rows` where a filter left some out.
        looked_to: Time of the line that was looked at last, seconds since 1970.
    """

    rows: list[Row]
    first: Cursor
    last: Cursor
    has_older: bool
    has_newer: bool
    looked: int
    looked_to: float | None = None


def tail(feeds: Sequence[Feed]) -> Cursor:
    """The place after the newest line of each feed."""
    return Cursor({feed.key: feed.last_number() for feed in feeds})


def older_page(feeds: Sequence[Feed], before: Cursor, limit: int) -> Page:
    """The last `limit` lines before the cursor; feeds that it does not name began later."""
    named = [feed for feed in feeds if feed.key in before.numbers]
    found = {feed.key: feed.before(before.of(feed.key), limit) for feed in named}
    merged = heapq.merge(
        *([(line, key) for line in reversed(lines)] for key, lines in found.items()),
        key=lambda item: item[0].at,
        reverse=True,
    )
    taken = [item for item, _ in zip(merged, range(limit), strict=False)][::-1]
    first = before.moved({key: line.number for line, key in reversed(taken)})
    total = sum(len(lines) for lines in found.values())
    return Page(
        rows=_rows(named, taken),
        first=first,
        last=Cursor({key: number - 1 for key, number in before.numbers.items()}),
        has_older=total > len(taken) or any(len(lines) == limit for lines in found.values()),
        has_newer=True,
        looked=len(taken),
        looked_to=taken[0][0].at if taken else None,
    )


def newer_page(feeds: Sequence[Feed], after: Cursor, limit: int) -> Page:
    """The first `limit` lines after the cursor; feeds that it does not name from their start."""
    found = {feed.key: feed.after(after.of(feed.key), limit) for feed in feeds}
    merged = heapq.merge(
        *([(line, key) for line in lines] for key, lines in found.items()),
        key=lambda item: item[0].at,
    )
    taken = [item for item, _ in zip(merged, range(limit), strict=False)]
    numbers = {feed.key: after.of(feed.key) for feed in feeds}
    total = sum(len(lines) for lines in found.values())
    return Page(
        rows=_rows(feeds, taken),
        first=Cursor({key: number + 1 for key, number in numbers.items()}),
        last=Cursor({**numbers, **{key: line.number for line, key in taken}}),
        has_older=True,
        has_newer=total > len(taken) or any(len(lines) == limit for lines in found.values()),
        looked=len(taken),
        looked_to=taken[-1][0].at if taken else None,
    )


def last_page(feeds: Sequence[Feed], limit: int) -> Page:
    """The newest lines; its `last` is where a live stream begins."""
    end = tail(feeds)
    page = older_page(
        feeds, Cursor({key: number + 1 for key, number in end.numbers.items()}), limit
    )
    return _ended(page, end)


def page_around(feed: Feed, number: int, lines_around: int = 25) -> Page:
    """A line with as many before and after it; the nearest ones when it is no longer kept."""
    before = feed.before(number, lines_around)
    after = feed.after(number - 1, lines_around + 1)
    lines = [(line, feed.key) for line in [*before, *after]]
    first = lines[0][0].number if lines else number
    last = lines[-1][0].number if lines else number - 1
    return Page(
        rows=_rows([feed], lines),
        first=Cursor({feed.key: first}),
        last=Cursor({feed.key: last}),
        has_older=len(before) == lines_around,
        has_newer=last < feed.last_number(),
        looked=len(lines),
    )


def page_at(feeds: Sequence[Feed], at: float, lines_around: int) -> Page:
    """Up to so many lines before a time, and as many from it on."""
    places = {feed.key: _number_at(feed, at) for feed in feeds}
    before = older_page(feeds, Cursor(places), lines_around)
    after = newer_page(
        feeds, Cursor({key: number - 1 for key, number in places.items()}), lines_around
    )
    return Page(
        rows=[*before.rows, *after.rows],
        first=before.first,
        last=after.last,
        has_older=before.has_older,
        has_newer=after.has_newer,
        looked=before.looked + after.looked,
        looked_to=before.looked_to or after.looked_to,
    )


def _number_at(feed: Feed, at: float) -> int:
    """The number of the feed's first line that is not older than `at`, by halving."""
    oldest = feed.after(0, 1)
    low = oldest[0].number if oldest else 1
    high = feed.last_number() + 1
    while low < high:
        middle = (low + high) // 2
        line = feed.after(middle - 1, 1)
        if line and line[0].at < at:
            low = middle + 1
        else:
            high = middle
    return low


def search_older(feeds: Sequence[Feed], before: Cursor, wanted: Filter, limit: int) -> Page:
    """About `limit` wanted rows before the cursor, found backwards within this module's limits."""
    return _search(lambda at: older_page(feeds, at, MAX_PAGE_LINES), before, wanted, limit, -1)


def search_newer(feeds: Sequence[Feed], after: Cursor, wanted: Filter, limit: int) -> Page:
    """About `limit` wanted rows after the cursor."""
    return _search(lambda at: newer_page(feeds, at, MAX_PAGE_LINES), after, wanted, limit, 1)


def search_last(feeds: Sequence[Feed], wanted: Filter, limit: int) -> Page:
    """About the `limit` newest wanted rows."""
    end = tail(feeds)
    start = Cursor({key: number + 1 for key, number in end.numbers.items()})
    return _ended(search_older(feeds, start, wanted, limit), end)


def _search(
    read: Callable[[Cursor], Page], start: Cursor, wanted: Filter, limit: int, direction: int
) -> Page:
    deadline = time.monotonic() + MAX_LOOKING_S
    pages: list[Page] = []
    rows: list[Row] = []
    at, looked, goes_on = start, 0, True
    while goes_on and len(rows) < limit and looked < MAX_LOOKED_LINES:
        page = read(at)
        found = wanted.apply(page.rows)
        rows = found + rows if direction < 0 else rows + found
        at = page.first if direction < 0 else page.last
        goes_on = page.has_older if direction < 0 else page.has_newer
        looked += page.looked
        pages.append(page)
        if time.monotonic() > deadline:
            break
    return Page(
        rows=rows,
        first=at if direction < 0 else pages[0].first,
        last=pages[0].last if direction < 0 else at,
        has_older=goes_on if direction < 0 else True,
        has_newer=True if direction < 0 else goes_on,
        looked=looked,
        looked_to=pages[-1].looked_to,
    )


def _ended(page: Page, end: Cursor) -> Page:
    return Page(
        rows=page.rows,
        first=page.first,
        last=end,
        has_older=page.has_older,
        has_newer=False,
        looked=page.looked,
        looked_to=page.looked_to,
    )


def context_reader(feed: Feed, number: int) -> LevelReader:
    """A reader that knows the lines before `number`."""
    reader = LevelReader()
    if number > 1:
        read_rows(feed.key, feed.prefix, feed.before(number, CONTEXT_LINES), reader)
    return reader


def _rows(feeds: Sequence[Feed], lines: Iterable[tuple[LogLine, str]]) -> list[Row]:
    by_key = {feed.key: feed for feed in feeds}
    readers: dict[str, LevelReader] = {}
    rows: list[Row] = []
    for line, key in lines:
        feed = by_key[key]
        if key not in readers:
            readers[key] = context_reader(feed, line.number)
        rows += read_rows(key, feed.prefix, [line], readers[key])
    return rows
