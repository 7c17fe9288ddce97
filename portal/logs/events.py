"""Server-sent events: how they are written, and the live stream of a log.

Spec: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from portal.logs.cursors import Cursor
from portal.logs.feeds import Feed
from portal.logs.levels import LevelReader
from portal.logs.reading import MAX_PAGE_LINES, context_reader
from portal.logs.rows import Row, read_rows
from portal.logs.sources import Source

REOPEN_S = 2.0  # how often the source is looked up: replicas come and end
HEARTBEAT_S = 15.0
RETRY_MS = 1500


def event(name: str, data: object, event_id: str = "") -> str:
    """One event; JSON never holds a raw newline, so one data line carries it."""
    lines = [f"id: {event_id}"] if event_id else []
    lines += [f"event: {name}", f"data: {json.dumps(data, separators=(',', ':'))}"]
    return "\n".join(lines) + "\n\n"


class _Reader:
    """Reads on from a cursor; called from a thread, one call at a time."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._levels: dict[str, LevelReader] = {}

    def read(self, feeds: tuple[Feed, ...]) -> tuple[list[Row], bool]:
        """What was written since, and whether more waits."""
        rows: list[Row] = []
        is_more = False
        for feed in feeds:
            number = self.cursor.of(feed.key)
            lines = feed.after(number, MAX_PAGE_LINES)
            if not lines:
                continue
            if feed.key not in self._levels:
                self._levels[feed.key] = context_reader(feed, number + 1)
            rows += read_rows(feed.key, feed.prefix, lines, self._levels[feed.key])
            self.cursor = self.cursor.moved({feed.key: lines[-1].number})
            is_more = is_more or len(lines) == MAX_PAGE_LINES
        if len(feeds) > 1:
            rows.sort(key=lambda row: row.at or 0.0)
        return rows, is_more


async def follow(
    source: Source, reopen: Callable[[], Awaitable[Source | None]], cursor: Cursor
) -> AsyncIterator[str]:
    """The log from `cursor` on, as events, until nothing more can come.

    `lines` carries rows, its id is the cursor after them; `notice` tells that a replica of several
    ended; `end` is the last one.

    Args:
        source: What to follow.
        reopen: Looks the source up again; None when it is gone, or is not the reader's to see now.
        cursor: The last lines that the reader has.
    """
    reader = _Reader(cursor)
    told = dict(source.notices)
    looked_at = spoke_at = time.monotonic()
    yield f"retry: {RETRY_MS}\n\n" + event("start", {}, str(cursor))
    while True:
        rows, is_more = await asyncio.to_thread(reader.read, source.feeds)
        now = time.monotonic()
        if rows:
            yield event("lines", [row.as_json() for row in rows], str(reader.cursor))
            spoke_at = now
        elif source.ended:  # looked up before this read found nothing: there is no more
            yield event("end", {"message": source.ended})
            return
        elif now - spoke_at > HEARTBEAT_S:
            yield ": beat\n\n"
            spoke_at = now
        if now - looked_at > REOPEN_S:
            looked_at = now
            found = await reopen()
            if found is None:
                yield event("end", {"message": "This log is no longer there."})
                return
            source = found
            for key, message in source.notices.items():
                if told.get(key) != message:
                    yield event("notice", {"message": message})
            told = dict(source.notices)
        if not is_more:
            await asyncio.sleep(source.poll_s)
