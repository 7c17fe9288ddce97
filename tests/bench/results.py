"""What a run of the benchmark finds, and the sums over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bench.load import Figures

Say = Callable[[str], None]

SHOAL, SHOAL_BINARY, TRITON = "shoal", "shoal-binary", "triton"
NOT_PEERS = (SHOAL, SHOAL_BINARY, TRITON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A server under one load: the median round."""

    server: str
    workload: str
    callers: int
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A server that could not be measured with a workload."""

    server: str
    workload: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """The module without a server: rows a second in its best batch."""

    rows_per_s: float
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under which the run took place.

    Attributes:
        machine: In words.
        copies: Of the model in each peer.
        threads: On which each copy of the model computes, in every server.
    """

    date: str
    machine: str
    workloads: tuple[str, ...]
    callers: tuple[int, ...]
    seconds: int
    rounds: int
    copies: int
    threads: int


@dataclass(slots=True, kw_only=True)
class Run:
    """A run, filled as it goes on.

    Attributes:
        servers: Those that were wanted, in the order of the table.
        versions: By server, where known.
        settings: Shoal's batching in force by workload, in words.
        alone: By workload.
    """

    conditions: Conditions
    servers: tuple[str, ...]
    measured: list[Measured] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    alone: dict[str, Alone] = field(default_factory=dict)

    def figures(self, server: str, workload: str, callers: int) -> Figures | None:
        """What the server did under this load."""
        wanted = (server, workload, callers)
        found = (m.figures for m in self.measured if (m.server, m.workload, m.callers) == wanted)
        return next(found, None)

    def of_peers(self, workload: str, callers: int) -> list[Figures]:
        """What the peers did: neither Shoal nor Triton asked directly."""
        found = (
            self.figures(server, workload, callers)
            for server in self.servers
            if server not in NOT_PEERS
        )
        return [figures for figures in found if figures is not None]

    def times_best_peer(self, workload: str, callers: int) -> float | None:
        """How many times the best peer's requests a second Shoal answers."""
        best = max((f.requests_per_s for f in self.of_peers(workload, callers)), default=0.0)
        ours = self.figures(SHOAL, workload, callers)
        return ours.requests_per_s / best if ours and best else None

    def of_fastest_peer(self, workload: str, callers: int) -> float | None:
        """Shoal's median time of a request as a share of the fastest peer's."""
        times = (f.p50_ms for f in self.of_peers(workload, callers) if f.requests_per_s)
        best = min(times, default=0.0)
        ours = self.figures(SHOAL, workload, callers)
        return ours.p50_ms / best if ours and best else None

    def of_triton(self, server: str, workload: str, callers: int) -> float | None:
        """A server's requests a second as a share of Triton's, asked directly."""
        direct = self.figures(TRITON, workload, callers)
        found = self.figures(server, workload, callers)
        if direct is None or found is None or not direct.requests_per_s:
            return None
        return found.requests_per_s / direct.requests_per_s
