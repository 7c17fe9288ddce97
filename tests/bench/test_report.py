"""The sums of the benchmark's report, and what it says of servers that failed."""

from __future__ import annotations

from typing import Any

from tests.bench.load import Figures, median, read_result
from tests.bench.report import markdown
from tests.bench.results import Conditions, Failure, Measured, Run


def figures(requests_per_s: float, *, p50_ms: float = 1.0, errors: int = 0) -> Figures:
    return Figures(requests_per_s=requests_per_s, p50_ms=p50_ms, p99_ms=2 * p50_ms, errors=errors)


def run_of(measured: dict[str, Figures], **more: Any) -> Run:
    """A run of one workload with 64 callers, and these figures by server."""
    conditions = Conditions(
        date="2026-01-02 03:04 UTC",
        machine="2 cores of a test",
        workloads=("mlp",),
        callers=(64,),
        seconds=6,
        rounds=3,
        copies=1,
        threads=1,
    )
    return Run(
        conditions=conditions,
        servers=("shoal", "shoal-binary", "litserve", "mlserver", "triton"),
        measured=[
            Measured(server=server, workload="mlp", callers=64, figures=found)
            for server, found in measured.items()
        ],
        **more,
    )


def row_of(run: Run, heading: str) -> dict[str, str]:
    """The only row of the table under this heading."""
    lines = markdown(run).split(heading)[1].strip().splitlines()
    head, values = ([cell.strip() for cell in lines[n].split("|")[1:-1]] for n in (0, 2))
    return dict(zip(head, values, strict=True))


THROUGHPUT, TIMES = "(more is better):", "(less is better):"


def test_the_middle_round_counts_and_errors_of_all_rounds_add_up() -> None:
    rounds = [figures(900, p50_ms=3, errors=1), figures(100, p50_ms=9), figures(800, p50_ms=1)]

    assert median(rounds) == Figures(requests_per_s=800, p50_ms=3, p99_ms=6, errors=1)


def test_refused_requests_are_errors_and_not_throughput() -> None:
    line = (
        '{"requests": 500, "us": 2000000, "p50_us": 1500, "p99_us": 4000, '
        '"refused": 100, "broken": 7}'
    )

    assert read_result(line) == Figures(requests_per_s=200, p50_ms=1.5, p99_ms=4, errors=107)


def test_ratios_are_to_the_best_peer_and_to_triton() -> None:
    run = run_of(
        {
            "shoal": figures(9000, p50_ms=2),
            "shoal-binary": figures(12000, p50_ms=1),
            "litserve": figures(1500, p50_ms=5),
            "mlserver": figures(1000, p50_ms=4),  # fewer requests, yet the shorter median
            "triton": figures(18000),
        }
    )

    throughput, times = row_of(run, THROUGHPUT), row_of(run, TIMES)

    assert throughput["× best peer"] == "6.00"
    assert throughput["× Triton"] == "0.50"
    assert throughput["binary × Triton"] == "0.67"
    assert times["× fastest peer"] == "0.50"


def test_a_peer_that_answered_nothing_in_time_is_not_the_fastest() -> None:
    run = run_of(
        {
            "shoal": figures(9000, p50_ms=2),
            "litserve": figures(0, p50_ms=0),
            "mlserver": figures(1000, p50_ms=4),
        }
    )

    times = row_of(run, TIMES)

    assert times["× fastest peer"] == "0.50"
    assert times["LitServe"] == "–"


def test_a_server_that_failed_leaves_a_gap_and_its_reason() -> None:
    run = run_of(
        {"shoal": figures(9000), "mlserver": figures(1000, errors=12)},
        failures=[Failure(server="litserve", workload="mlp", why="no answer\nin time")],
    )

    throughput, text = row_of(run, THROUGHPUT), markdown(run)

    assert throughput["LitServe"] == throughput["× Triton"] == "–"
    assert throughput["× best peer"] == "9.00"
    assert "- LitServe, mlp: no answer in time" in text
    assert "- MLServer, mlp, 64 callers: 12" in text
