"""Pages of one or several replicas' logs, from folders that the supervisor's own writer wrote."""

from __future__ import annotations

from itertools import count

import pytest
from django.conf import settings

from portal.endpoints.models import Replica
from portal.logs.cursors import Cursor
from portal.logs.feeds import BuildFeed, ReplicaFeed
from portal.logs.filters import Filter
from portal.logs.levels import Level
from portal.logs.reading import (
    Page,
    last_page,
    newer_page,
    older_page,
    page_around,
    page_at,
    search_last,
    search_newer,
    search_older,
)
from serving.replica.log_store import LogStore
from tests.support.logs import TRITON_START, write_lines, write_log, write_timed

Places = list[tuple[str, int]]


COUNTER = count()


@pytest.fixture
def feed() -> ReplicaFeed:
    return make_feed(f"read{next(COUNTER)}")


def make_feed(replica_id: str) -> ReplicaFeed:
    found = ReplicaFeed(Replica(public_id=replica_id, backend="TRITON"))
    found.replica.directory.mkdir(parents=True)
    return found


def places(page: Page) -> Places:
    return [(row.key, row.number) for row in page.rows]


def numbers(page: Page) -> list[int]:
    return [row.number for row in page.rows]


def test_the_newest_lines_then_older_ones_up_to_the_start(feed: ReplicaFeed) -> None:
    write_lines(feed.replica.directory, 1200)

    newest = last_page([feed], 500)
    middle = older_page([feed], newest.first, 500)
    oldest = older_page([feed], middle.first, 500)

    assert numbers(oldest) + numbers(middle) + numbers(newest) == list(range(1, 1201))
    assert (newest.has_older, middle.has_older, oldest.has_older) == (True, True, False)
    assert not newest.has_newer


def test_newer_lines_from_the_start_to_the_end(feed: ReplicaFeed) -> None:
    write_lines(feed.replica.directory, 1200)

    first = newer_page([feed], Cursor(), 1000)
    second = newer_page([feed], first.last, 1000)

    assert numbers(first) + numbers(second) == list(range(1, 1201))
    assert (first.has_newer, second.has_newer) == (True, False)


def test_replicas_are_merged_by_time_without_gaps_or_doubles() -> None:
    feeds = [make_feed(name) for name in ("mrga1", "mrgb2", "mrgc3")]
    stores = [LogStore(feed.replica.directory) for feed in feeds]
    for turn in range(300):
        stores[turn * 7 % 3].append("server", [f"turn {turn}"] * (turn % 4))

    pages = [last_page(feeds, 50)]
    while pages[0].has_older:
        pages.insert(0, older_page(feeds, pages[0].first, 50))
    forward = [newer_page(feeds, Cursor(), 70)]
    while forward[-1].has_newer:
        forward.append(newer_page(feeds, forward[-1].last, 70))

    written = {(f.key, n) for f in feeds for n in range(1, f.last_number() + 1)}
    backwards_rows = [row for page in pages for row in page.rows]
    forward_rows = [row for page in forward for row in page.rows]
    for rows in (backwards_rows, forward_rows):
        assert len(rows) == len(written)
        assert {(row.key, row.number) for row in rows} == written
        times = [row.at for row in rows]
        assert times == sorted(times, key=lambda at: at or 0)


def test_a_replica_that_starts_later_is_read_from_its_start() -> None:
    old, new = make_feed("lata1"), make_feed("latb2")
    write_lines(old.replica.directory, 5)
    seen = last_page([old], 500)
    write_lines(new.replica.directory, 3)

    page = newer_page([old, new], seen.last, 500)

    assert places(page) == [("latb2", 1), ("latb2", 2), ("latb2", 3)]


def test_a_permalink_shows_fifty_lines_around_its_own(feed: ReplicaFeed) -> None:
    write_lines(feed.replica.directory, 300)

    page = page_around(feed, 100, 25)

    assert numbers(page) == list(range(75, 126))
    assert page.has_older
    assert page.has_newer
    assert numbers(newer_page([feed], page.last, 5)) == [126, 127, 128, 129, 130]


def test_a_permalink_to_a_line_that_rotation_took_shows_the_nearest() -> None:
    feed = make_feed("rotat")
    store = LogStore(feed.replica.directory, segment_bytes=2000, kept_segments=2)
    for number in range(400):
        store.append("server", [f"line {number} with some text to fill the segment"])

    page = page_around(feed, 3, 25)

    assert page.rows
    assert page.rows[0].number > 3
    assert not page.has_older


def test_a_time_is_found_in_every_replica(feed: ReplicaFeed) -> None:
    other = make_feed(f"read{next(COUNTER)}")
    write_timed(feed.replica.directory, [1000.0 + n for n in range(400)], first=501)
    write_timed(other.replica.directory, [1000.5 + 10 * n for n in range(40)])

    page = page_at([feed, other], 1200.0, 5)

    older, newer = (
        [1195.0, 1196.0, 1197.0, 1198.0, 1199.0],
        [1200.0, 1200.5, 1201.0, 1202.0, 1203.0],
    )
    assert [row.at for row in page.rows] == older + newer
    assert older_page([feed, other], page.first, 1).rows[0].at == 1194.0
    assert newer_page([feed, other], page.last, 1).rows[0].at == 1204.0


@pytest.mark.parametrize(("at", "expected"), [(0.0, 1000.0), (9e9, 1099.0)])
def test_a_time_before_or_after_all_lines_gives_the_nearest(
    feed: ReplicaFeed, at: float, expected: float
) -> None:
    write_timed(feed.replica.directory, [1000.0 + n for n in range(100)], first=7)

    page = page_at([feed], at, 5)

    assert expected in [row.at for row in page.rows]
    assert len(page.rows) == 5


def test_levels_know_the_lines_before_the_page(feed: ReplicaFeed) -> None:
    write_log(
        feed.replica.directory,
        [
            ("server", "Traceback (most recent call last):"),
            *(("server", f"  frame {n}") for n in range(20)),
        ],
    )

    page = last_page([feed], 5)

    assert {row.level for row in page.rows} == {Level.ERROR}
    assert not any(row.is_head for row in page.rows)


def test_the_supervisors_words_are_marked_and_do_not_break_a_traceback(feed: ReplicaFeed) -> None:
    write_log(
        feed.replica.directory,
        [
            ("server", "Traceback (most recent call last):"),
            ("shoal", "The server was killed (exit code 137). Starting it again in 1 s."),
            ("server", "  frame"),
        ],
    )

    rows = last_page([feed], 5).rows

    assert [row.is_own for row in rows] == [False, True, False]
    assert [row.level.value for row in rows] == ["E", "E", "E"]
    assert rows[
        1
    ].as_text() == f"[ts/{feed.key}] [shoal] The server was killed (exit code 137)." + (
        " Starting it again in 1 s."
    )


def test_tritons_lines_are_kept_as_they_are(feed: ReplicaFeed) -> None:
    write_log(feed.replica.directory, TRITON_START)

    rows = last_page([feed], 100).rows

    assert [row.text for row in rows] == [text for _, text in TRITON_START]


def test_a_search_goes_back_beyond_the_first_page(feed: ReplicaFeed) -> None:
    store = write_lines(feed.replica.directory, 6)
    store.append("server", ["needle here"])
    store.append("server", ["hay"] * 5000)
    store.append("server", ["needle again"])

    page = search_last([feed], Filter(text="needle"), 500)

    assert numbers(page) == [7, 5008]
    assert page.looked == 5008
    assert not page.has_older
    assert page.last.of(feed.key) == 5008


def test_a_search_stops_at_its_limit_and_goes_on_from_there(feed: ReplicaFeed) -> None:
    store = write_lines(feed.replica.directory, 1, "needle")
    store.append("server", ["hay"] * 25_000)

    first = search_last([feed], Filter(text="needle"), 500)
    second = search_older([feed], first.first, Filter(text="needle"), 500)

    assert (first.rows, first.looked, first.has_older) == ([], 20_000, True)
    assert numbers(second) == [1]
    assert not second.has_older


def test_a_search_goes_forward(feed: ReplicaFeed) -> None:
    write_lines(feed.replica.directory, 5000)

    page = search_newer([feed], Cursor({feed.key: 10}), Filter(text="line 4999"), 10)

    assert numbers(page) == [4999]


def test_a_build_log_is_numbered_text() -> None:
    feed = BuildFeed("build", "[build]", lambda: "one\ntwo\nthree\n")

    assert [row.text for row in last_page([feed], 2).rows] == ["two", "three"]
    assert numbers(page_around(feed, 1)) == [1, 2, 3]
    assert last_page([feed], 5).rows[0].as_text(with_time=True) == "[build] one"


def test_a_replica_without_a_log_has_no_lines() -> None:
    feed = ReplicaFeed(Replica(public_id="none1", backend="STANDARD"))

    assert not (settings.REPLICAS_DIR / "none1").exists()
    assert last_page([feed], 10).rows == []
    assert feed.prefix == "[std/none1]"
