"""A replica's log: whole lines, numbered without gaps, bounded, readable while it is written."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.replica.log_format import SERVER, logs_directory, segments
from serving.replica.log_lines import Allowance, LineSplitter
from serving.replica.log_pump import LogPump
from serving.replica.log_store import LogStore
from serving.runtime import last_line_number, read_logs
from serving.spec import LogLine


def numbers(lines: list[LogLine]) -> list[int]:
    """The lines' numbers."""
    return [line.number for line in lines]


def write(store: LogStore, count: int, text: str = "line {}") -> None:
    """Write lines one by one."""
    for n in range(count):
        store.append(SERVER, [text.format(n)])


def pump(directory: Path, code: str, *, secrets: tuple[str, ...] = ()) -> list[LogLine]:
    """Run a program and keep what it writes."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    pump = LogPump(
        process.stdout,
        LogStore(directory),
        lambda lines: None,
        is_vital=lambda text: text == "vital",
        secrets=secrets,
        allowance=Allowance(bytes_per_s=0, burst_bytes=10 * 2**20),
    )
    pump.start()
    assert process.wait(30) == 0
    pump.join(30)
    return read_logs(directory)


# ---------------------------------------------------------------- lines


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"))),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_lines_come_out_whole_however_the_output_is_cut(lines: list[str], cuts: list[int]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    splitter, found, position, turn = LineSplitter(), [], 0, 0
    while position < len(data):
        size = cuts[turn % len(cuts)]
        found += splitter.feed(data[position : position + size])
        position, turn = position + size, turn + 1

    assert found + splitter.finish() == lines


def test_bad_bytes_are_replaced_and_nul_is_removed() -> None:
    assert LineSplitter().feed(b"a\0b\xff\xc3\xa9\n") == ["ab\N{REPLACEMENT CHARACTER}\xe9"]


def test_a_progress_bar_shows_its_steps() -> None:
    splitter = LineSplitter()

    lines = splitter.feed(b"10%\r") + splitter.feed(b"20%\r") + splitter.feed(b"\ndone\r\n")

    assert lines == ["10%", "20%", "done"]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_long_line_is_cut_with_a_note(step: int) -> None:
    splitter, found = LineSplitter(longest_bytes=10), []
    data = b"x" * 35 + b"\nshort\n"
    for position in range(0, len(data), step):
        found += splitter.feed(data[position : position + step])

    assert found == ["xxxxxxxxxx [25 more bytes of this line were left out]", "short"]


def test_an_unfinished_line_is_kept_at_the_end() -> None:
    splitter = LineSplitter()

    assert splitter.feed(b"no newline") == []
    assert splitter.finish() == ["no newline"]
    assert splitter.finish() == []


def test_the_allowance_is_a_burst_and_then_a_rate() -> None:
    allowance = Allowance(bytes_per_s=10, burst_bytes=100)

    assert allowance.takes(100, now=0.0)
    assert not allowance.takes(1, now=0.0)
    assert allowance.takes(10, now=1.0)
    assert not allowance.takes(10, now=1.5)


# ---------------------------------------------------------------- the store


def test_lines_are_numbered_from_1_and_read_back(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    store.say("hello")
    store.append(SERVER, ["a\tb", "", "\N{SNOWMAN}\x85"])

    lines = read_logs(tmp_path)

    assert [(x.number, x.source, x.text) for x in lines] == [
        (1, "shoal", "hello"),
        (2, "server", "a\tb"),
        (3, "server", ""),
        (4, "server", "\N{SNOWMAN}\x85"),
    ]
    assert last_line_number(tmp_path) == 4


def test_an_empty_log_has_no_lines(tmp_path: Path) -> None:
    assert read_logs(tmp_path) == []
    assert last_line_number(tmp_path) == 0


def test_reading_by_number(tmp_path: Path) -> None:
    write(LogStore(tmp_path, segment_bytes=300), 100)

    assert numbers(read_logs(tmp_path, limit=3)) == [98, 99, 100]
    assert numbers(read_logs(tmp_path, after=0, limit=3)) == [1, 2, 3]
    assert numbers(read_logs(tmp_path, after=41, limit=30)) == list(range(42, 72))
    assert numbers(read_logs(tmp_path, before=42, limit=30)) == list(range(12, 42))
    assert numbers(read_logs(tmp_path, after=10, before=14)) == [11, 12, 13]
    assert read_logs(tmp_path, after=100) == []
    assert read_logs(tmp_path, before=1) == []


def test_a_follower_reads_the_end_of_a_large_segment(tmp_path: Path) -> None:
    write(LogStore(tmp_path), 3000, "x" * 90)

    assert numbers(read_logs(tmp_path, after=2998)) == [2999, 3000]
    assert numbers(read_logs(tmp_path, after=10, limit=2)) == [11, 12]
    assert last_line_number(tmp_path) == 3000


def test_old_segments_are_dropped_and_a_line_says_so(tmp_path: Path) -> None:
    store = LogStore(tmp_path, segment_bytes=1000, kept_segments=3)
    write(store, 500)

    lines = read_logs(tmp_path, after=0, limit=1000)

    assert len(segments(logs_directory(tmp_path))) == 3
    assert numbers(lines) == list(range(lines[0].number, lines[-1].number + 1))
    assert lines[-1].text == "line 499"
    assert any(line.source == "shoal" and "were removed" in line.text for line in lines)


def test_numbers_go_on_after_a_restart_and_a_torn_line_is_gone(tmp_path: Path) -> None:
    write(LogStore(tmp_path, segment_bytes=300), 50)
    newest = segments(logs_directory(tmp_path))[-1][1]
    with newest.open("ab") as file:
        file.write(b"51\t1.0\tserver\thalf a li")  # the writer was killed

    LogStore(tmp_path, segment_bytes=300).say("again")

    assert [(x.number, x.text) for x in read_logs(tmp_path, limit=2)] == [
        (50, "line 49"),
        (51, "again"),
    ]


def test_a_follower_sees_each_line_once_while_the_log_rotates(tmp_path: Path) -> None:
    store = LogStore(tmp_path, segment_bytes=2000)
    writer = threading.Thread(target=write, args=(store, 3000))
    writer.start()
    seen: list[int] = []
    while writer.is_alive() or last_line_number(tmp_path) > (seen or [0])[-1]:
        seen += numbers(read_logs(tmp_path, after=(seen or [0])[-1], limit=200))

    assert seen == list(range(1, 3001))


def test_a_reader_survives_the_removal_of_what_it_reads(tmp_path: Path) -> None:
    store = LogStore(tmp_path, segment_bytes=500, kept_segments=2)
    writer = threading.Thread(target=write, args=(store, 3000))
    writer.start()
    while writer.is_alive():
        for lines in (read_logs(tmp_path, after=0), read_logs(tmp_path)):
            assert numbers(lines) == sorted(numbers(lines))


# ---------------------------------------------------------------- the pump


def test_both_outputs_are_kept_in_order(tmp_path: Path) -> None:
    code = (
        "import sys\nfor i in range(50):\n"
        "    print(i, file=sys.stdout if i % 2 else sys.stderr, flush=True)"
    )

    assert [line.text for line in pump(tmp_path, code)] == [str(i) for i in range(50)]


def test_a_flood_is_left_out_but_for_what_is_vital(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for _ in range(400): sys.stdout.write(('x' * 99 + '\\n') * 1000)\n"
        "print('vital')"
    )

    pump(tmp_path, code)

    lines = read_logs(tmp_path, after=0, limit=1_000_000)
    assert any("lines were left out: they came too fast" in line.text for line in lines)
    assert "vital" in [line.text for line in lines]
    assert sum(f.stat().st_size for _, f in segments(logs_directory(tmp_path))) < 20 * 2**20


def test_known_secrets_are_masked(tmp_path: Path) -> None:
    lines = pump(tmp_path, "print('the token is s3cr3t-t0ken!')", secrets=("s3cr3t-t0ken",))

    assert lines[0].text == "the token is [masked]!"


def test_a_line_that_its_readers_choke_on_does_not_stop_the_pump(tmp_path: Path) -> None:
    def choke(lines: object) -> None:
        raise ValueError("choked")

    process = subprocess.Popen(["echo", "hello"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pump = LogPump(process.stdout, LogStore(tmp_path), choke, is_vital=lambda text: False)
    pump.start()
    pump.join(10)
    process.wait()

    assert read_logs(tmp_path)[0].text == "hello"
