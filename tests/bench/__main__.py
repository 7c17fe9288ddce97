"""Measure Shoal and its peers side by side: `python -m tests.bench --help`, or `make bench`.

One server runs at a time. Each is asked once, and its answer held against the module's own,
before it is loaded. One that cannot be measured is reported and does not end the run.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tests.bench import alone, chart, load, report, servers, shoal
from tests.bench.bodies import Site, WrongAnswer
from tests.bench.machine import machine
from tests.bench.results import SHOAL, SHOAL_BINARY, TRITON, Conditions, Failure, Measured, Run
from tests.bench.workloads import WORKLOADS, build, example, predict
from tests.support.client import ROOT

# About, for the estimate: a peer, Shoal, and its endpoints made anew or kept from another run.
START_S, SHOAL_START_S, SERVE_S, SERVE_KEPT_S = 12, 30, 90, 10
RELATIVE, ABSOLUTE = 1e-3, 1e-4  # how far an answer may be from the module's own
BEGIN = time.monotonic()


def say(text: str) -> None:
    """One line on the console with the seconds since the start."""
    sys.stdout.write(f"[{time.monotonic() - BEGIN:6.1f} s] {text}\n")
    sys.stdout.flush()


def main() -> None:
    """Read the options, run, write the report."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # stops what runs, as Ctrl-C
    try:
        load.require_wrk()
    except load.NoLoadGenerator as exc:
        sys.exit(str(exc))
    peers = {TRITON: Path(sys.prefix), **options.peers}
    ours = () if options.without_shoal else (SHOAL, SHOAL_BINARY)
    run = Run(
        conditions=Conditions(
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            machine=machine(),
            workloads=tuple(options.workloads),
            callers=tuple(options.concurrency),
            seconds=options.seconds,
            rounds=options.rounds,
            copies=options.copies,
            threads=options.threads,
        ),
        servers=(*ours, *(name for name in servers.PEERS if name in peers)),
        versions={name: servers.PEERS[name].version(path) for name, path in peers.items()},
    )
    say(", ".join(report.LABELS[server] for server in run.servers))
    say(_estimate(run, options.data))
    try:
        for workload in run.conditions.workloads:
            run.alone[workload] = alone.measure(workload, threads=options.threads)
        if ours:
            _measure_shoal(run, options.data)
            _write(run, options.out)
        for name in run.servers:
            if name in peers:
                _measure_peer(run, name, peers[name].absolute())
                _write(run, options.out)
    finally:
        files = _write(run, options.out)
    sys.stdout.write("\n" + report.markdown(run) + "\n")
    say("written: " + ", ".join(str(file) for file in files))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--peers", type=_peers, default={}, help='"NAME=VIRTUALENV ..."; names: ' + _names()
    )
    parser.add_argument("--workloads", type=_workloads, default=list(WORKLOADS))
    parser.add_argument("--concurrency", type=_counts, default=[1, 16, 64])
    parser.add_argument("--seconds", type=int, default=6, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--copies", type=int, default=1, help="of the model in each peer")
    parser.add_argument("--threads", type=int, default=1, help="of each copy of a model")
    parser.add_argument("--without-shoal", action="store_true", help="measure only the peers")
    parser.add_argument(
        "--data", type=Path, help="keep Shoal's data here: the next run spares the registering"
    )
    parser.add_argument("--out", type=Path, default=ROOT / ".bench")
    return parser.parse_args()


def _names() -> str:
    return ", ".join(servers.PEERS)


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _workloads(text: str) -> list[str]:
    names = _words(text)
    if unknown := [name for name in names if name not in WORKLOADS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(WORKLOADS)}")
    return names


def _counts(text: str) -> list[int]:
    return [int(word) for word in _words(text)]


def _peers(text: str) -> dict[str, Path]:
    found = {}
    for word in _words(text):
        name, _, folder = word.partition("=")
        if name not in servers.PEERS or not Path(folder, "bin", "python").exists():
            raise argparse.ArgumentTypeError(
                f"{word}: give NAME=VIRTUALENV with a NAME of {_names()}"
            )
        found[name] = Path(folder)
    return found


def _estimate(run: Run, data: Path | None) -> str:
    at = run.conditions
    one = len(at.callers) * (load.WARM_UP_S + at.rounds * at.seconds + 1)
    peers = [server for server in run.servers if server in servers.PEERS]
    seconds = len(at.workloads) * (len(run.servers) * one + len(peers) * START_S)
    if SHOAL in run.servers:
        is_kept = data is not None and data.exists()
        seconds += SHOAL_START_S + len(at.workloads) * (SERVE_KEPT_S if is_kept else SERVE_S)
    end = datetime.fromtimestamp(time.time() + seconds, UTC)
    return (
        f"{', '.join(at.workloads)} with {', '.join(map(str, at.callers))} callers: about "
        f"{seconds / 60:.0f} minutes, until {end:%H:%M} UTC"
    )


def _measure_shoal(run: Run, data: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        folder, home = Path(name), data.absolute() if data else Path(name, "shoal")
        home.mkdir(parents=True, exist_ok=True)
        try:
            with shoal.running(home, say, threads=run.conditions.threads) as ours:
                problems = shoal.serve_all(ours, run.conditions.workloads, say)
                for workload in run.conditions.workloads:
                    if workload in problems:
                        _failed(run, SHOAL, workload, problems[workload])
                        continue
                    _measure(run, SHOAL, workload, ours.site(workload), folder)
                    _measure(run, SHOAL_BINARY, workload, ours.binary_site(workload), folder)
                    run.settings[workload] = ours.settings(workload)
        except Exception as exc:  # noqa: BLE001 - the peers are measured all the same
            _failed(run, SHOAL, "all", str(exc))


def _measure_peer(run: Run, name: str, environment: Path) -> None:
    at = run.conditions
    for workload in at.workloads:
        with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
            begin = time.monotonic()
            try:
                with servers.running(
                    *(name, environment, workload, Path(folder)),
                    copies=at.copies,
                    threads=at.threads,
                ) as site:
                    say(f"{name} {workload} answers after {time.monotonic() - begin:.0f} s")
                    _measure(run, name, workload, site, Path(folder))
            except Exception as exc:  # noqa: BLE001 - a broken peer must not end the run
                _failed(run, name, workload, str(exc))


def _measure(run: Run, server: str, workload: str, site: Site, folder: Path) -> None:
    """Check the server's answer, then load it; a failure is noted."""
    at, row = run.conditions, example(workload)
    try:
        _check(site, workload)
        for callers in at.callers:
            rounds = load.measure(
                *(site, row),
                callers=callers,
                seconds=at.seconds,
                rounds=at.rounds,
                folder=folder,
            )
            figures = load.median(rounds)
            run.measured.append(
                Measured(server=server, workload=workload, callers=callers, figures=figures)
            )
            say(f"{server} {workload} {callers}: {_in_words(figures, rounds)}")
    except Exception as exc:  # noqa: BLE001 - a broken server must not end the run
        _failed(run, server, workload, str(exc))


def _check(site: Site, workload: str) -> None:
    row = example(workload)
    got, wanted = site.ask(row), predict(build(workload), row)
    if got.shape != wanted.shape or not np.allclose(got, wanted, RELATIVE, ABSOLUTE):
        raise WrongAnswer("its numbers are not the module's own")


def _in_words(figures: load.Figures, rounds: Sequence[load.Figures]) -> str:
    rates = ", ".join(report.rate(r.requests_per_s) for r in rounds)
    return (
        f"{report.rate(figures.requests_per_s)}/s ({rates}), median "
        f"{report.milliseconds(figures.p50_ms)} ms, 99 % {report.milliseconds(figures.p99_ms)} ms"
        + (f", {figures.errors} ERRORS" if figures.errors else "")
    )


def _failed(run: Run, server: str, workload: str, why: str) -> None:
    run.failures.append(Failure(server=server, workload=workload, why=why))
    say(f"{server} {workload} FAILED: {why}")


def _write(run: Run, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    table, figures = folder / "report.md", folder / "results.json"
    table.write_text("# Benchmark\n\n" + report.markdown(run))
    figures.write_text(json.dumps(asdict(run), indent=1) + "\n")
    return [table, figures, *chart.write(run, folder)]


if __name__ == "__main__":
    main()
