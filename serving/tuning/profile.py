"""What a profile is: the measurements of one model on one device, and what was chosen from them.

Kept as JSON by `serving.spec.to_json` and `from_json`; nothing here measures or decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.spec import Batching


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStep:
    """One size of the sweep: requests of `rows` rows, one after the other.

    Attributes:
        runs: How often it was measured.
        latency_ms: The median, from the first byte sent to the last one received.
    """

    rows: int
    runs: int
    latency_ms: float
    rows_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting under `callers` callers that each send one row and wait for its answer.

    Attributes:
        failure: Why there are no figures, empty where there are.
    """

    instance_count: int
    threads_per_instance: int
    max_batch_size: int
    max_queue_delay_microseconds: int
    callers: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    is_chosen: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Whether the model may be batched at all, and whether it gains from it.

    Attributes:
        rows_checked: Rows of the largest batch whose rows were compared with their answers alone.
        is_row_independent: None where it could not be checked.
        speedup_of_8: How much quicker 8 rows in one call are than 8 calls of one; None: not timed.
        warning: What the user should know, empty when all is well.
    """

    rows_checked: int
    is_row_independent: bool | None
    speedup_of_8: float | None = None
    warning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A model's measurements on one device, and the batching that follows from them.

    Attributes:
        steps: The sweep, by rows.
        trials: The settings that were tried, in that order; one of them is chosen, if any.
        knee_rows: The smallest batch with nearly all of the best throughput.
        memory_bound_rows: Most rows that shared memory has room for; None: it is not the limit.
        stopped_because: Why the sweep went no further.
        chosen: What to serve with, where the user overrides nothing.
        reasons: A sentence for each field of `chosen`.
        device: Such as "cpu-emulation:2 cores" or "cuda:NVIDIA H200".
        duration_s: Of all measurements, loads between them included.
        measured_at: Seconds since 1970.
    """

    steps: tuple[SweepStep, ...]
    trials: tuple[Trial, ...]
    probe: ProbeResult | None
    knee_rows: int
    memory_bound_rows: int | None
    stopped_because: str
    chosen: Batching
    reasons: Mapping[str, str] = field(default_factory=dict)
    device: str
    duration_s: float
    measured_at: float
