"""The log viewer in a real browser: following, pausing, finding, permalinks, keys."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from serving.replica.log_store import LogStore
from tests.browser.conftest import Tab
from tests.support.log_site import PASSWORD, USERNAME, LogSite
from tests.support.logs import TRITON_START, write_timed

BIG_LINES = 25_000
START = 1_700_000_000  # 2023-11-14 22:13:20 UTC


@pytest.fixture(scope="module")
def site() -> Iterator[LogSite]:
    """The portal in another process.

    g7zw9 has a short log, x0k2p grows, old11 is long, hours has a line a second.
    """
    with tempfile.TemporaryDirectory(prefix="shoal-log-site-") as folder:
        found = LogSite(Path(folder))
        found.start()
        short = found.log("g7zw9")
        for source, text in TRITON_START:
            short.append(source, [text])
        short.append("server", ["\x1b[31mred\x1b[0m <b>not bold</b>"])
        short.append("server", ["Traceback (most recent call last):", "  frame", "ValueError: no"])
        long = found.log("old11")
        long.append("server", ["INFO: the needle"])
        for start in range(0, BIG_LINES, 1000):
            long.append("server", [f"INFO: hay {n}" for n in range(start, start + 1000)])
        write_timed(found.folder / "replicas" / "hours", [START + n for n in range(4000)])
        yield found
        found.stop()


@pytest.fixture
def growing(site: LogSite) -> LogStore:
    """The log of x0k2p, 600 lines longer."""
    store = site.log("x0k2p")
    store.append("server", [f"INFO: filling {n}" for n in range(600)])
    return store


@pytest.fixture
def log(tab: Tab, site: LogSite) -> Tab:
    """A tab of somebody who may see the endpoint."""
    tab.log_in(site.url, USERNAME, PASSWORD)
    return tab


def open_log(log: Tab, site: LogSite, query: str = "") -> Page:
    log.page.goto(f"{site.url}/endpoints/bert/logs/?{query}")
    expect(state(log.page)).not_to_have_text("Loading")
    return log.page


def state(page: Page) -> Locator:
    return page.locator("[data-log-state]")


def rows(page: Page) -> Locator:
    return page.locator("[data-rows] .log-row")


def row(page: Page, text: str) -> Locator:
    return rows(page).filter(has_text=re.compile(rf"{text}$"))


def is_in_sight(page: Page, text: str) -> bool:
    found: bool = page.evaluate(
        """text => {
            const box = document.querySelector("[data-scroller]").getBoundingClientRect();
            return [...document.querySelectorAll("[data-rows] .log-row")].some((row) => {
                const its = row.getBoundingClientRect();
                const inside = its.top >= box.top - 1 && its.bottom <= box.bottom + 1;
                return inside && row.querySelector(".log-text").textContent.endsWith(text);
            });
        }""",
        text,
    )
    return found


def test_new_lines_are_followed(log: Tab, site: LogSite, growing: LogStore) -> None:
    page = open_log(log, site, "replica=x0k2p")
    expect(state(page)).to_have_text("Live")

    growing.append("server", ["INFO: the newest"])

    expect(row(page, "the newest").last).to_be_visible()
    assert is_in_sight(page, "the newest")
    assert log.complaints == []


def test_scrolling_up_pauses_and_the_pill_leads_back(
    log: Tab, site: LogSite, growing: LogStore
) -> None:
    page = open_log(log, site, "replica=x0k2p")
    expect(state(page)).to_have_text("Live")
    page.locator("[data-scroller]").hover()
    page.mouse.wheel(0, -2000)
    expect(state(page)).to_have_text("Paused")
    page.wait_for_timeout(300)
    seen = page.evaluate("document.querySelector('[data-scroller]').scrollTop")

    growing.append("server", [f"INFO: meanwhile {n}" for n in range(134)])

    pill = page.get_by_role("button", name="134 new, jump to latest")
    expect(pill).to_be_visible()
    assert page.evaluate("document.querySelector('[data-scroller]').scrollTop") == seen
    pill.click()
    expect(state(page)).to_have_text("Live")
    expect(pill).to_be_hidden()
    assert is_in_sight(page, "meanwhile 133")


def test_scrolling_to_the_end_resumes(log: Tab, site: LogSite, growing: LogStore) -> None:
    page = open_log(log, site, "replica=x0k2p")
    page.locator("[data-scroller]").hover()
    page.mouse.wheel(0, -1000)
    expect(state(page)).to_have_text("Paused")

    page.mouse.wheel(0, 100_000)

    expect(state(page)).to_have_text("Live")


def test_a_long_log_stays_small_in_the_page_and_scrolls_to_its_start(
    log: Tab, site: LogSite
) -> None:
    page = open_log(log, site, "replica=old11")
    expect(page.locator("[data-edge=newer]")).to_have_text("Replica old11 stopped, exit code 0.")
    assert is_in_sight(page, f"hay {BIG_LINES - 1}")

    for _ in range(8):
        page.evaluate("document.querySelector('[data-scroller]').scrollTop = 0")
        page.wait_for_timeout(250)

    assert rows(page).count() <= 400
    first = int(rows(page).first.locator(".log-number").inner_text())
    assert first < BIG_LINES - 1500
    numbers = [int(text) for text in rows(page).locator(".log-number").all_inner_texts()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert log.complaints == []


def test_a_search_looks_back_says_how_far_and_goes_on(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=old11")

    page.get_by_label("Search lines").fill("NEEDLE")

    expect(page.get_by_text(re.compile(r"Looked at 2\d,\d{3} lines, back to"))).to_be_visible()
    expect(page.locator("[data-found]")).to_have_text("0 lines")
    page.get_by_role("button", name="Search further back").click()
    expect(row(page, "the needle")).to_be_visible()
    expect(page.locator("[data-found]")).to_have_text("1 line")
    assert "q=NEEDLE" in page.url

    page.get_by_label("Search lines").fill("")
    expect(row(page, f"hay {BIG_LINES - 1}")).to_be_visible()
    expect(row(page, "the needle")).to_have_count(0)


def test_matches_are_counted_marked_and_stepped_through(
    log: Tab, site: LogSite, growing: LogStore
) -> None:
    page = open_log(log, site, "replica=x0k2p")
    page.get_by_text("Highlight").click()
    page.get_by_label("Search lines").fill(r"filling 59\d$")
    page.get_by_text(".*", exact=True).click()

    found = page.locator("[data-found]")
    expect(found).to_have_text(re.compile(r"^\d*0 lines$"))
    expect(page.locator(".log-match").first).to_have_text("filling 590")
    page.locator("[data-scroller]").focus()
    page.keyboard.press("N")
    expect(page.locator("[data-current]")).to_have_count(1)
    expect(found).to_have_text(re.compile(r"^\d+ of \d*0 lines$"))
    expect(state(page)).to_have_text("Paused")


def test_an_expression_that_is_none_is_told(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=g7zw9")
    page.get_by_text(".*", exact=True).click()
    page.get_by_label("Search lines").fill("(")

    expect(page.locator("[data-found]")).to_contain_text("Not a regular expression")
    expect(page.get_by_label("Search lines")).to_have_attribute("aria-invalid", "true")


def test_levels_keep_whole_tracebacks_and_count_them_once(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=g7zw9")
    error = page.locator(".log-level-choice[data-level=E]")
    expect(error).to_have_text(re.compile(r"Error\s+1"))

    error.click()

    expect(rows(page)).to_have_count(3)
    assert "level=E" in page.url
    page.reload()
    expect(rows(page)).to_have_count(3)


def test_a_permalink_opens_paused_with_its_line_marked(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=old11&line=12000")

    marked = page.locator("[data-marked]")
    expect(marked).to_have_count(1)
    expect(marked.locator(".log-number")).to_have_text("12000")
    expect(state(page)).to_have_text("Paused")
    assert is_in_sight(page, "hay 11998")
    expect(page.get_by_role("button", name=re.compile("new, jump to latest"))).to_be_visible()

    page.get_by_role("button", name=re.compile("jump to latest")).click()
    expect(row(page, f"hay {BIG_LINES - 1}")).to_be_visible()
    assert "line=" not in page.url


def test_numbers_make_permalinks_and_ranges(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=g7zw9")
    number = page.locator('.log-number[href="?replica=g7zw9&line=4"]')

    number.click()
    expect(page.locator("[data-marked]")).to_have_count(1)
    assert page.url.endswith("?replica=g7zw9&line=4")
    page.locator('.log-number[href="?replica=g7zw9&line=6"]').click(modifiers=["Shift"])
    expect(page.locator("[data-marked]")).to_have_count(3)
    assert page.url.endswith("?replica=g7zw9&line=4-6")
    expect(page.get_by_role("button", name="Copy 3 lines")).to_be_visible()

    page.reload()
    expect(page.locator("[data-marked]")).to_have_count(3)


def test_marked_lines_are_copied_with_their_prefix(log: Tab, site: LogSite) -> None:
    log.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = open_log(log, site, "replica=g7zw9&line=1-2")
    expect(page.locator("[data-marked]")).to_have_count(2)

    page.get_by_role("button", name="Copy 2 lines").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()

    copied = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert copied == [
        f"[ts/g7zw9] [shoal] {TRITON_START[0][1]}",
        f"[ts/g7zw9] {TRITON_START[1][1]}",
    ]


def test_text_is_never_markup_and_colours_are_classes(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=g7zw9")

    line = row(page, "not bold</b>")
    expect(line.locator(".log-text")).to_have_text("red <b>not bold</b>")
    expect(line.locator(".ansi-red")).to_have_text("red")
    expect(rows(page).first.locator(".log-own")).to_have_text("Shoal")


def test_keys_act_outside_fields_only(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=g7zw9")
    box = page.locator("[data-scroller]")
    page.get_by_label("Search lines").press("w")
    expect(box).not_to_have_class(re.compile("log-wraps"))
    page.get_by_label("Search lines").fill("")

    box.focus()
    page.keyboard.press("w")
    expect(box).to_have_class(re.compile("log-wraps"))
    page.keyboard.press("f")
    expect(state(page)).to_have_text("Paused")
    page.keyboard.press("[")
    expect(page.locator("[data-current]")).to_contain_text("Traceback")
    page.keyboard.press("l")
    expect(page.locator("[data-marked]")).to_contain_text("Traceback")

    page.reload()
    expect(box).to_have_class(re.compile("log-wraps"))


def test_times_can_be_local_or_off(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=g7zw9")
    page.get_by_text("View", exact=True).click()
    page.get_by_text("Off", exact=True).click()

    expect(page.locator(".log-time").first).to_be_hidden()


def test_a_time_is_gone_to_by_keyboard_and_stays_in_the_address(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=hours")
    page.locator("[data-scroller]").focus()
    page.keyboard.press("t")
    field = page.get_by_label(re.compile("Time, UTC"))
    expect(field).to_be_focused()

    field.fill("2023-11-14T22:40:00")
    page.keyboard.press("Enter")

    expect(page.locator("[data-current]")).to_contain_text(f"at {START + 1600}")
    expect(page.locator("[data-scroller]")).to_be_focused()
    assert is_in_sight(page, f"at {START + 1600}")
    assert page.url.endswith("?replica=hours&at=2023-11-14T22%3A40%3A00")
    page.reload()
    expect(page.locator("[data-current]")).to_contain_text(f"at {START + 1600}")
    page.get_by_role("button", name="Jump to latest").click()
    expect(row(page, f"at {START + 3999}")).to_be_visible()
    assert "at=" not in page.url
    assert log.complaints == []


def test_the_text_grows_and_shrinks_and_is_remembered(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=g7zw9")
    size = "parseFloat(getComputedStyle(document.querySelector('[data-scroller]')).fontSize)"
    normal = page.evaluate(size)
    page.locator("[data-scroller]").focus()

    page.keyboard.press("+")
    page.keyboard.press("+")
    page.keyboard.press("+")  # there is no larger one
    largest = page.evaluate(size)
    page.reload()
    remembered = page.evaluate(size)
    page.get_by_text("View", exact=True).click()
    page.get_by_text("Small", exact=True).click()

    assert largest == remembered > normal > page.evaluate(size)


def test_a_match_can_be_shown_in_context(log: Tab, site: LogSite) -> None:
    page = open_log(log, site, "replica=g7zw9")
    page.get_by_label("Search lines").fill("successfully loaded")
    expect(rows(page)).to_have_count(1)
    rows(page).locator(".log-number").click()

    page.get_by_role("button", name="Show in context").click()

    expect(page.locator("[data-marked]")).to_contain_text("successfully loaded")
    assert rows(page).count() > 10


def test_a_web_process_that_restarts_loses_and_doubles_nothing(
    log: Tab, site: LogSite, growing: LogStore
) -> None:
    page = open_log(log, site, "replica=x0k2p")
    expect(state(page)).to_have_text("Live")

    site.restart(lambda: growing.append("server", [f"INFO: while away {n}" for n in range(40)]))

    expect(row(page, "while away 39")).to_be_visible(timeout=30_000)
    expect(row(page, r"while away \d+")).to_have_count(40)


def test_without_script_it_is_pages_and_a_form(plain_tab: Tab, site: LogSite) -> None:
    plain_tab.log_in(site.url, USERNAME, PASSWORD)
    page = plain_tab.page
    page.goto(f"{site.url}/endpoints/bert/logs/?replica=old11")
    expect(rows(page)).to_have_count(500)

    page.get_by_role("link", name="Older lines").first.click()
    expect(rows(page).last.locator(".log-number")).to_have_text(str(BIG_LINES - 499))
    page.get_by_label("Search lines").fill("hay 24999")
    page.get_by_role("button", name="Filter").click()
    expect(rows(page)).to_have_count(1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(log: Tab, site: LogSite, scheme: str) -> None:
    log.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page = open_log(log, site, "replica=g7zw9&line=3")
    expect(page.locator("[data-marked]")).to_have_count(1)

    assert "\n".join(log.axe()) == ""
