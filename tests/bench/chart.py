"""The run as a chart: requests per second of each server, a panel for each workload."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tests.bench.report import LABELS
from tests.bench.results import Run

COLUMNS = 2
COLOURS = ("#0b6e4f", "#5fb98f", "#3b6fb6", "#d08c2f", "#8a5fb0", "#b8504f", "#4fa3b8", "#8a8a8a")


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
    """Bars in groups by the number of callers, on a logarithmic axis."""
    workloads = run.conditions.workloads
    lines = -(-len(workloads) // COLUMNS)
    figure = make_subplots(rows=lines, cols=COLUMNS, subplot_titles=workloads)
    callers = [f"{count} caller{'s' * (count > 1)}" for count in run.conditions.callers]
    for place, workload in enumerate(workloads):
        for number, server in enumerate(run.servers):
            found = [run.figures(server, workload, count) for count in run.conditions.callers]
            figure.add_trace(
                go.Bar(
                    name=LABELS[server],
                    legendgroup=server,
                    showlegend=place == 0,
                    marker_color=COLOURS[number % len(COLOURS)],
                    x=callers,
                    y=[f.requests_per_s if f else None for f in found],
                    hovertemplate="%{y:,.4~g} requests/s",
                ),
                row=place // COLUMNS + 1,
                col=place % COLUMNS + 1,
            )
    figure.update_yaxes(type="log", title_text="requests/s", dtick=1)
    figure.update_layout(
        title=f"Requests per second, {run.conditions.date}<br><sub>{run.conditions.machine}</sub>",
        template="plotly_white",
        barmode="group",
        height=120 + 340 * lines,
        width=1200,
        legend={"orientation": "h", "y": -0.08},
    )
    return figure
