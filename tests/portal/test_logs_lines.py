"""What a line becomes: its level, its colours, its text form, and what a filter finds in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.logs.ansi import read_ansi
from portal.logs.cursors import BadCursor, Cursor
from portal.logs.filters import BadPattern, Filter
from portal.logs.levels import Level, LevelReader
from portal.logs.rows import Row, read_rows
from serving.spec import LogLine


def rows(*texts: str, source: str = "server") -> list[Row]:
    lines = [
        LogLine(number=number, at=1757630602.356 + number, source=source, text=text)
        for number, text in enumerate(texts, start=1)
    ]
    return read_rows("g7zw9", "[ts/g7zw9]", lines, LevelReader())


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("I0911 22:43:22.356197 1 model_lifecycle.cc:849] \"successfully loaded 'model'\"", "I"),
        ('E1130 23:30:10.454 1 pb_stub.cc:721] "Failed to initialize Python stub"', "E"),
        ('W1130 23:30:10.454 1 metrics.cc:1] "x"', "W"),
        ("2025-11-30T23:30:10Z F 1 server.cc:1] gone", "F"),
        ("INFO:     Started server process [1]", "I"),
        ("WARNING:root:something odd", "W"),
        ("2025-11-30 23:30:10,123 - my.model - ERROR - it broke", "E"),
        ("2025/11/30 23:30:10 WARNING mlflow.pyfunc: mismatch", "W"),
        ("[2025-11-30 23:30:10 +0000] [123] [INFO] Starting gunicorn", "I"),
        ("[DEBUG] noise", "D"),
        ("CRITICAL: no more memory", "F"),
        ("/env/lib/python3.11/site-packages/x.py:12: FutureWarning: soon", "W"),
        ("RuntimeError: boom", "E"),
        ("Traceback (most recent call last):", "E"),
        ("loading the ERROR table", "P"),
        ("INFORMATION is power", "P"),
        ("Signal (15) received.", "P"),
    ],
)
def test_a_line_has_the_level_that_it_states(text: str, level: str) -> None:
    assert rows(text)[0].level == Level(level)


def test_a_traceback_belongs_to_its_first_line() -> None:
    found = rows(
        "I1130 23:30:10.193 1 model_lifecycle.cc:472] before",
        "Traceback (most recent call last):",
        '  File "model.py", line 3, in predict',
        "    1 / 0",
        "ZeroDivisionError: division by zero",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "model.py", line 5, in predict',
        "ValueError: no",
        "printed by the model",
    )

    assert "".join(row.level.value for row in found) == "I" + "E" * 10 + "P"
    assert [row.number for row in found if row.is_head] == [1, 2, 12]


def test_tables_and_indented_rests_belong_to_the_line_before() -> None:
    found = rows(
        "I1130 23:30:10.534 1 server.cc:674] ",
        "+-------+---------+--------+",
        "| model | 1       | READY  |",
        "",
        "E1130 23:30:10.534 1 model_lifecycle.cc:1] failed",
        "At:",
        "  /model.py(93): initialize",
        "W1130 23:30:11.534 1 server.cc:1] next",
    )

    assert "".join(row.level.value for row in found) == "IIIIEEEW"
    assert [row.number for row in found if row.is_head] == [1, 5, 8]


def test_colours_become_spans_and_escapes_disappear() -> None:
    text, spans = read_ansi(
        "\x1b[1;31mred\x1b[0m plain \x1b[92mgreen\x1b[39m\x1b]0;title\x07\x1b[2K!"
    )

    assert text == "red plain green!"
    assert spans == ((0, 3, "ansi-red ansi-bold"), (10, 15, "ansi-green"))


@pytest.mark.parametrize("code", ["38;5;1", "38;5;9", "31", "91", "48;2;1;2;3;31"])
def test_extended_colours_map_to_the_tokens(code: str) -> None:
    assert read_ansi(f"\x1b[{code}mx")[1] == ((0, 1, "ansi-red"),)


def test_a_progress_bar_shows_its_last_state_and_control_characters_are_visible() -> None:
    assert read_ansi("10%\r50%\r100%\r")[0] == "100%"
    assert read_ansi("a\x00b\x07\tc")[0] == "a␀b␇\tc"


@given(st.text())
def test_no_escape_survives_and_spans_stay_inside(text: str) -> None:
    plain, spans = read_ansi(text)

    assert "\x1b" not in plain
    assert all(0 <= start < end <= len(plain) for start, end, _ in spans)


def test_text_form_keeps_the_servers_line_and_marks_our_own() -> None:
    line = "I0911 22:43:22.356197 1 model_lifecycle.cc:849] \"successfully loaded 'model'\""

    assert rows(line)[0].as_text() == f"[ts/g7zw9] {line}"
    assert rows("Starting", source="shoal")[0].as_text() == "[ts/g7zw9] [shoal] Starting"
    assert rows("x")[0].as_text(with_time=True) == "2025-09-11T22:43:23.356Z [ts/g7zw9] x"


def test_places_are_counted_as_a_browser_counts_them() -> None:
    found = Filter(text="b").apply(rows("\U0001f41fb"))[0]

    assert found.matches == ((1, 2),)
    assert found.as_json()["m"] == [(2, 3)]


def test_pieces_cut_where_a_colour_or_a_match_begins() -> None:
    found = Filter(text="lo wo").apply(rows("hel\x1b[31mlo\x1b[0m world"))[0]

    assert list(found.pieces()) == [
        ("", "hel"),
        ("ansi-red log-match", "lo"),
        ("log-match", " wo"),
        ("", "rld"),
    ]


def test_filters_by_text_case_expression_and_level() -> None:
    found = rows("INFO: Model a.b loaded", "ERROR: model axb failed", "plain")

    def numbers(**wanted: object) -> list[int]:
        return [row.number for row in Filter(**wanted).apply(found)]  # type: ignore[arg-type]

    assert numbers(text="MODEL") == [1, 2]
    assert numbers(text="Model", match_case=True) == [1]
    assert numbers(text="a.b") == [1]
    assert numbers(text="a.b", is_regex=True) == [1, 2]
    assert numbers(text="model", levels=frozenset({Level.ERROR})) == [2]
    assert numbers(levels=frozenset({Level.PLAIN})) == [3]
    assert numbers() == [1, 2, 3]


def test_an_expression_that_matches_nothing_long_keeps_its_line() -> None:
    assert [row.matches for row in Filter(text="z*", is_regex=True).apply(rows("abc"))] == [()]


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "x" * 501])
def test_a_bad_pattern_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Filter(text=pattern, is_regex=True)


def test_a_pattern_that_never_ends_is_stopped() -> None:
    with pytest.raises(BadPattern, match="takes too long"):
        Filter(text="(a+)+$", is_regex=True).apply(rows("a" * 40 + "!"))


@given(st.dictionaries(st.from_regex(r"[a-z0-9]{1,16}", fullmatch=True), st.integers(0, 10**9)))
def test_a_cursor_reads_what_it_wrote(numbers: dict[str, int]) -> None:
    assert Cursor.parse(str(Cursor(numbers))) == Cursor(numbers)


@pytest.mark.parametrize("text", ["x", "a:b", "a:1;b:2", "../x:1", "a:-1"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        Cursor.parse(text)
