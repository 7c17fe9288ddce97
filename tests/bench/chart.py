"""The run as a chart: requests per second of each server, a panel for each load."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tests.bench.report import LABELS, NOTHING, rate
from tests.bench.results import SHOAL, SHOAL_BINARY, Run

OURS, THEIRS = "#0b6e4f", "#9aa5b1"
ROOM_FOR_TEXT = 1.25


def write(run: Run, folder: Path) -> list[Path]:
    """Write the chart as one HTML file, and as PNG where kaleido is installed; the files."""
    figure = draw(run)
    page = folder / "chart.html"
    figure.write_html(page, include_plotlyjs=True, config={"displaylogo": False})
    if find_spec("kaleido") is None:
        return [page]
    image = folder / "chart.png"
    figure.write_image(image, scale=2)
    return [page, image]


def draw(run: Run) -> go.Figure:
    """Bars from nought: a row of panels for each workload, a column for each number of callers."""
    at = run.conditions
    titles = [
        f"{workload}, {count} caller{'s' * (count > 1)}"
        for workload in at.workloads
        for count in at.callers
    ]
    figure = make_subplots(
        rows=len(at.workloads),
        cols=len(at.callers),
        subplot_titles=titles,
        shared_yaxes=True,
        horizontal_spacing=0.04,
        vertical_spacing=0.24 / len(at.workloads),
    )
    for place in range(len(titles)):
        row, col = divmod(place, len(at.callers))
        found = [run.figures(s, at.workloads[row], at.callers[col]) for s in run.servers]
        bars = go.Bar(
            orientation="h",
            marker_color=[
                OURS if server in (SHOAL, SHOAL_BINARY) else THEIRS for server in run.servers
            ],
            y=[LABELS[server] for server in run.servers],
            x=[figures.requests_per_s if figures else None for figures in found],
            text=[rate(figures.requests_per_s) if figures else NOTHING for figures in found],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{text} requests/s<extra></extra>",
        )
        figure.add_trace(bars, row=row + 1, col=col + 1)
        most = max((figures.requests_per_s for figures in found if figures), default=1.0)
        figure.update_xaxes(range=[0, most * ROOM_FOR_TEXT], row=row + 1, col=col + 1)
    figure.update_xaxes(showticklabels=False, showgrid=False, zeroline=False)
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(
        title=f"Requests per second, {at.date}<br><sub>{at.machine}</sub>",
        template="plotly_white",
        showlegend=False,
        height=150 + len(at.workloads) * (70 + 28 * len(run.servers)),
        width=200 + 330 * len(at.callers),
        margin={"t": 110},
    )
    return figure
