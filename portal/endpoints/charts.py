"""The charts of an endpoint's pages as Plotly figures: data, which the page's script draws.

Colours are the page's: a trace names its tone in `meta`, and the script gives it the colour that
the theme has for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from serving.batching import Realised, number
from serving.spec import BatchSize
from serving.tuning.profile import SweepStep

Figure = dict[str, Any]

MARGIN = {"l": 56, "r": 16, "t": 22, "b": 44}
FEW = 6
TONES = {"accent": {"tone": "accent"}, "second": {"tone": "second"}}


def distribution(sizes: Sequence[BatchSize], max_batch_size: int) -> Figure:
    """How many batches had so many rows; a line marks the largest that is allowed."""
    rows = [size.rows for size in sizes]
    batches = [size.executions for size in sizes]
    bars = go.Bar(
        x=rows,
        y=batches,
        meta=TONES["accent"],
        hovertemplate="%{x} rows: %{y:,} batches<extra></extra>",
    )
    largest = max(rows, default=1)
    end = max_batch_size if max_batch_size <= 4 * largest else largest
    figure = _figure([bars], x="Rows a batch", y="Batches")
    figure.update_xaxes(range=[0.3, end + 0.7], **_whole_ticks(end))
    figure.update_yaxes(rangemode="tozero", **_whole_ticks(max(batches, default=1)))
    if end == max_batch_size and max_batch_size > 1:
        _mark(figure, max_batch_size, f"largest: {max_batch_size}", anchor="right")
    return _plain(figure)


def time_split(found: Realised) -> Figure:
    """Where the time goes: a wait in the queue, and a batch's time in the model."""
    bars = [
        go.Bar(
            x=[value],
            y=[""],
            name=name,
            orientation="h",
            text=[f"{name} {number(value)} ms"],
            textposition="auto",
            insidetextanchor="middle",
            meta=TONES[tone],
            hovertemplate=f"{name} {number(value)} ms<extra></extra>",
        )
        for name, value, tone in (
            ("Compute", found.compute_ms, "accent"),
            ("Queue", found.queue_ms, "second"),  # the last stands on top
        )
    ]
    figure = _figure(bars, x="Milliseconds", y="")
    figure.update_layout(barmode="group", margin=MARGIN | {"l": 16, "t": 8})
    figure.update_yaxes(showticklabels=False)
    figure.update_xaxes(rangemode="tozero")
    return _plain(figure)


def sweep(steps: Sequence[SweepStep], knee_rows: int | None) -> Figure:
    """Rows a second and the latency of one call by its rows; a line marks the knee."""
    rows = [str(step.rows) for step in steps]
    throughput = go.Scatter(
        x=rows,
        y=[step.rows_per_s for step in steps],
        name="Rows/s",
        mode="lines+markers",
        meta=TONES["accent"],
        hovertemplate="%{x} rows a call: %{y:,.0f} rows/s<extra></extra>",
    )
    latency = go.Scatter(
        x=rows,
        y=[step.latency_ms for step in steps],
        name="Latency",
        mode="lines+markers",
        line={"dash": "dot"},
        marker={"symbol": "square"},
        yaxis="y2",
        meta=TONES["second"],
        hovertemplate="%{x} rows a call: %{y:,.1f} ms<extra></extra>",
    )
    figure = _figure([throughput, latency], x="Rows a call", y="Rows/s")
    figure.update_layout(
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1.08, "yanchor": "bottom"},
        margin=MARGIN | {"r": 56, "t": 44},
        yaxis2={
            "title": {"text": "Latency, ms", "standoff": 8},
            "automargin": True,
            "overlaying": "y",
            "side": "right",
            "rangemode": "tozero",
            "tickmode": "auto",
            "fixedrange": True,
            "showgrid": False,
        },
    )
    figure.update_xaxes(type="category")  # sizes double, so equal steps are a logarithmic axis
    figure.update_yaxes(rangemode="tozero", selector={"title.text": "Rows/s"}, tickformat=",d")
    if knee_rows is not None and str(knee_rows) in rows:
        at = rows.index(str(knee_rows))  # its place: "32" would count as a number
        _mark(figure, at, f"knee: {knee_rows}", anchor="right")
    return _plain(figure)


def _figure(traces: Sequence[Any], *, x: str, y: str) -> Any:
    figure = go.Figure(data=list(traces))
    figure.update_layout(
        template=None,
        margin=MARGIN,
        showlegend=False,
        dragmode=False,
        bargap=0.15,
        hovermode="closest",
    )
    figure.update_xaxes(title_text=x, fixedrange=True, showline=True, ticks="outside")
    figure.update_yaxes(title={"text": y, "standoff": 8}, fixedrange=True, automargin=True)
    return figure


def _whole_ticks(largest: int) -> dict[str, Any]:
    """Ticks at whole numbers; where there are few of these, at each."""
    return {"tickformat": ",d", **({"dtick": 1} if largest < FEW else {})}


def _mark(figure: Any, at: float, text: str, *, anchor: str) -> None:
    figure.add_shape(
        type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line={"dash": "dash", "width": 1}
    )
    figure.add_annotation(
        x=at, y=1, yref="paper", text=text, showarrow=False, xanchor=anchor, yanchor="bottom"
    )


def _plain(figure: Any) -> Figure:
    plain: Figure = figure.to_plotly_json()
    return plain
