"""Charts as data: what the page's script draws, without its colours."""

from __future__ import annotations

from portal.endpoints import charts
from serving.batching import realised
from serving.spec import Batching, BatchingSeen, BatchSize
from serving.tuning.profile import SweepStep
from tests.support.batching import span_of


def test_the_distribution_has_a_bar_a_size_and_a_line_at_the_largest_batch() -> None:
    sizes = [BatchSize(rows=1, executions=3), BatchSize(rows=24, executions=40)]

    figure = charts.distribution(sizes, 32)

    assert [(bar["x"], bar["y"]) for bar in figure["data"]] == [([1, 24], [3, 40])]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [32]
    assert figure["layout"]["annotations"][0]["text"] == "largest: 32"
    assert figure["layout"]["xaxis"]["range"] == [0.3, 32.7]


def test_a_largest_batch_far_away_does_not_squeeze_the_bars() -> None:
    figure = charts.distribution([BatchSize(rows=2, executions=3)], 512)

    assert figure["layout"]["xaxis"]["range"] == [0.3, 2.7]
    assert "shapes" not in figure["layout"]


def test_queue_and_compute_stand_side_by_side() -> None:
    span = span_of({4: 10}, queue_ms=3.0, compute_ms=12.5)
    found = realised([BatchingSeen(recent=span, total=span)], Batching())
    assert found is not None

    figure = charts.time_split(found)

    assert [(bar["text"], bar["x"]) for bar in figure["data"]] == [
        (["Compute 12 ms"], [12.5]),
        (["Queue 3 ms"], [3.0]),
    ]


def test_the_sweep_marks_its_knee_on_both_curves() -> None:
    steps = [
        SweepStep(rows=rows, runs=9, latency_ms=ms, rows_per_s=rows * 1000 / ms)
        for rows, ms in ((1, 4.0), (2, 4.4), (4, 5.2), (8, 8.0))
    ]

    figure = charts.sweep(steps, 4)

    throughput, latency = figure["data"]
    assert throughput["x"] == latency["x"] == ["1", "2", "4", "8"]
    assert throughput["y"][-1] == 1000.0
    assert latency["y"] == [4.0, 4.4, 5.2, 8.0]
    assert latency["yaxis"] == "y2"
    assert figure["layout"]["shapes"][0]["x0"] == 2  # the third size
    assert figure["layout"]["annotations"][0]["text"] == "knee: 4"
    assert "shapes" not in charts.sweep(steps, None)["layout"]
