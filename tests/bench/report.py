"""The run as Markdown: what a reader compares, and under which conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.bench.load import Figures
from tests.bench.results import NOT_PEERS, SHOAL, SHOAL_BINARY, TRITON, Run
from tests.bench.servers import MAX_BATCH, PEERS, WINDOW_MS

LABELS = {SHOAL: "Shoal", SHOAL_BINARY: "Shoal (binary)"} | {
    name: peer.label for name, peer in PEERS.items()
}
NOTHING = "–"
Show = Callable[[Figures], str]
WHY_SHOWN = 400  # characters of a failure


def markdown(run: Run) -> str:
    """The whole report."""
    parts = [
        _about(run),
        "Requests answered per second (more is better):",
        _throughput(run),
        "Median time of a request, ms (less is better):",
        _times(run),
        _alone(run),
        _settings(run),
        _errors(run),
        _failures(run),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def rate(value: float) -> str:
    """Requests a second, three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def milliseconds(value: float) -> str:
    """A time, three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(value: float | None) -> str:
    """A ratio, two or three digits."""
    if value is None:
        return NOTHING
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left and the others to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def _about(run: Run) -> str:
    at = run.conditions
    rounds = f"{at.rounds} round{'s' * (at.rounds > 1)} of {at.seconds} s"
    threads = f"{at.threads} thread{'s' * (at.threads > 1)}"
    versions = ", ".join(
        f"{LABELS[server]} ({PEERS[server].package} {version})"
        for server, version in run.versions.items()
    )
    peers = "with one copy of the model" if at.copies == 1 else f"with {at.copies} copies of it"
    return (
        f"Measured {at.date} on {at.machine}, load generator included: `wrk`, one thread, a closed "
        f"loop, one row a request, the median of {rounds}. Each copy of a model computes on "
        f"{threads}. Peers run {peers}, batching on (at most {MAX_BATCH} rows, {WINDOW_MS} ms; "
        "`mlflow models serve` has no batching and runs two processes). Shoal checks tokens and "
        "batches as its tuning chose." + (f" Versions: {versions}." if versions else "")
    )


def _row_heads(run: Run) -> list[tuple[str, int]]:
    return [(w, c) for w in run.conditions.workloads for c in run.conditions.callers]


def _cells(run: Run, servers: Sequence[str], workload: str, callers: int, show: Show) -> list[str]:
    found = (run.figures(server, workload, callers) for server in servers)
    return [NOTHING if figures is None else show(figures) for figures in found]


def _peers(run: Run) -> list[str]:
    return [server for server in run.servers if server not in NOT_PEERS]


def _others(run: Run) -> list[str]:
    """The table's last columns: peers, then Triton asked directly."""
    return [*_peers(run), *[TRITON] * (TRITON in run.servers)]


def _throughput(run: Run) -> str:
    """Shoal's columns come first, each ratio beside the figure that it is of."""
    peers, has_triton = _peers(run), TRITON in run.servers

    def show(figures: Figures) -> str:
        return rate(figures.requests_per_s)

    head = ["workload", "callers", LABELS[SHOAL]]
    head += ["× best peer"] * bool(peers) + ["× Triton"] * has_triton
    head += [LABELS[SHOAL_BINARY], *["binary × Triton"] * has_triton]
    head += [LABELS[server] for server in _others(run)]
    rows = []
    for workload, callers in _row_heads(run):
        row = [workload, str(callers), *_cells(run, [SHOAL], workload, callers, show)]
        if peers:
            row.append(ratio(run.times_best_peer(workload, callers)))
        if has_triton:
            row.append(ratio(run.of_triton(SHOAL, workload, callers)))
        row += _cells(run, [SHOAL_BINARY], workload, callers, show)
        if has_triton:
            row.append(ratio(run.of_triton(SHOAL_BINARY, workload, callers)))
        rows.append([*row, *_cells(run, _others(run), workload, callers, show)])
    return table(head, rows)


def _times(run: Run) -> str:
    peers = _peers(run)

    def show(figures: Figures) -> str:
        return milliseconds(figures.p50_ms) if figures.requests_per_s else NOTHING

    head = ["workload", "callers", LABELS[SHOAL], *["× fastest peer"] * bool(peers)]
    head += [LABELS[server] for server in [SHOAL_BINARY, *_others(run)]]
    rows = []
    for workload, callers in _row_heads(run):
        row = [workload, str(callers), *_cells(run, [SHOAL], workload, callers, show)]
        if peers:
            row.append(ratio(run.of_fastest_peer(workload, callers)))
        others = [SHOAL_BINARY, *_others(run)]
        rows.append([*row, *_cells(run, others, workload, callers, show)])
    return table(head, rows)


def _alone(run: Run) -> str:
    found = [
        f"{workload} {rate(alone.rows_per_s)} (batches of {alone.batch})"
        for workload, alone in run.alone.items()
    ]
    return f"Rows per second of the module alone, without a server: {', '.join(found)}." * bool(
        found
    )


def _settings(run: Run) -> str:
    lines = [f"- {workload}: {words}" for workload, words in run.settings.items()]
    return "\n".join(["Shoal's batching in force:\n", *lines]) if lines else ""


def _errors(run: Run) -> str:
    lines = [
        f"- {LABELS[m.server]}, {m.workload}, {m.callers} callers: {m.figures.errors:,}"
        for m in run.measured
        if m.figures.errors
    ]
    if lines:
        return "\n".join(["Errors under load, in all rounds:\n", *lines])
    return "No request failed under load." * bool(run.measured)


def _failures(run: Run) -> str:
    lines = [
        f"- {LABELS[f.server]}, {f.workload}: {' '.join(f.why.split())[:WHY_SHOWN]}"
        for f in run.failures
    ]
    return "\n".join(["Not measured:\n", *lines]) if lines else ""
