"""Load on a server, from `wrk`: one thread, a closed loop of so many callers."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import requests

from tests.bench.bodies import Body, Site
from tests.bench.workloads import Array

TIMEOUT_S = 60
WARM_UP_S = 2

SCRIPT = """\
local file = assert(io.open([==[%(body)s]==], "rb"))
wrk.method, wrk.body = "POST", file:read("*a")
file:close()
%(headers)s
function done(summary, latency)
  local e = summary.errors
  print(string.format(
    'RESULT {"requests": %%d, "us": %%d, "p50_us": %%d, "p99_us": %%d, ' ..
    '"refused": %%d, "broken": %%d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.status, e.connect + e.read + e.write + e.timeout))
end
"""


class NoLoadGenerator(Exception):
    """`wrk` is not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a round of load saw, or the median of several.

    Attributes:
        requests_per_s: Answered with success.
        errors: Answers that were errors, and requests without an answer.
    """

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int


def require_wrk() -> None:
    """Raise `NoLoadGenerator` with what to do where `wrk` is not on PATH."""
    if shutil.which("wrk") is None:
        raise NoLoadGenerator(
            "The load comes from wrk, which is not on PATH. Install it: apt-get install wrk"
        )


def median(rounds: Sequence[Figures]) -> Figures:
    """The median of each figure; errors are those of all rounds together."""
    return Figures(
        requests_per_s=statistics.median(r.requests_per_s for r in rounds),
        p50_ms=statistics.median(r.p50_ms for r in rounds),
        p99_ms=statistics.median(r.p99_ms for r in rounds),
        errors=sum(r.errors for r in rounds),
    )


def measure(
    site: Site, rows: Array, *, callers: int, seconds: int, rounds: int, folder: Path
) -> list[Figures]:
    """Rounds of load, after a short one that does not count."""
    script = _script(site.request(rows), folder)
    seen = []
    for length in (WARM_UP_S, *[seconds] * rounds):
        seen.append(_wrk(site.url, script, callers, length))
        with suppress(requests.RequestException):
            site.ask(rows)  # so that what this round left in the queue is not the next one's
    return seen[1:]


def _script(body: Body, folder: Path) -> Path:
    content, script = folder / "body", folder / "load.lua"
    content.write_bytes(body.content)
    headers = "\n".join(
        f"wrk.headers[ [==[{name}]==] ] = [==[{value}]==]" for name, value in body.headers.items()
    )
    script.write_text(SCRIPT % {"body": content, "headers": headers})
    return script


def _wrk(url: str, script: Path, callers: int, seconds: int) -> Figures:
    command = ["wrk", "-t1", f"-c{callers}", f"-d{seconds}s", f"--timeout={TIMEOUT_S}s"]
    done = subprocess.run(
        [*command, "-s", str(script), url], capture_output=True, text=True, check=False
    )
    line = next((s for s in done.stdout.splitlines() if s.startswith("RESULT ")), "")
    if not line:
        raise RuntimeError(f"wrk failed: {done.stderr or done.stdout}")
    return read_result(line.removeprefix("RESULT "))


def read_result(text: str) -> Figures:
    """The figures in the line that the load's script prints."""
    seen = json.loads(text)
    return Figures(
        requests_per_s=(seen["requests"] - seen["refused"]) / (seen["us"] / 1e6),
        p50_ms=seen["p50_us"] / 1e3,
        p99_ms=seen["p99_us"] / 1e3,
        errors=seen["refused"] + seen["broken"],
    )
