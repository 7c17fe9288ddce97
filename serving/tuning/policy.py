"""From measurements to settings: when a sweep ends, what is tried next, what is chosen, and why.

Pure: no clock, no process, no replica. The percentages are rules of thumb; each is named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from serving.spec import DeviceKind
from serving.tuning.profile import ProbeResult, SweepStep, Trial

LARGEST_BATCH = 64
CALLERS = 64
ROUNDS = 2
LONGEST_TRIAL_S = 8.0
NEARLY_BEST = 0.95  # the knee: the smallest batch with so much of the best throughput
WORTH_A_LARGER_BATCH = 1.03
ENOUGH_ROWS = 8  # a sweep goes at least so far
LATENCY_LIMIT_MS = 1000.0
WORTH_AN_INSTANCE = 1.15  # a second copy of the model in memory
INSTANCE_COUNTS = (1, 2, 4)
WORTH_A_DELAY = 1.05
DELAY_NEEDS_GAIN = 2.0
DELAY_SHARE = 0.25  # of the time of one row
FREE_CORE = 0.5  # cores that a call keeps busy: below, the work is done elsewhere
SHARE_OF_MEMORY = 0.8
SHARE_OF_SHARED_MEMORY = 5  # one in so many bytes: other replicas need theirs
SHARED_MEMORY_FACTOR = 2.4  # 1.2 x the batch, and twice that while a model is loaded anew
FULL_BATCHES_QUEUED = 8
LEAST_QUEUE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What bounds the settings where the replicas run.

    Attributes:
        memory_bytes: Of the device's memory, what is free for further instances; None: unknown.
        shared_memory_bytes: Free now.
        replicas: How many replicas the served entity starts.
    """

    device: DeviceKind
    cores: int
    memory_bytes: int | None
    shared_memory_bytes: int
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a replica is started with to be measured."""

    instance_count: int = 1
    threads_per_instance: int = 1
    max_batch_size: int = LARGEST_BATCH
    max_queue_delay_microseconds: int = 0

    @property
    def words(self) -> str:
        """The setting in a few words, for a person."""
        found = f"{self.instance_count} instance{'' if self.instance_count == 1 else 's'}"
        if self.max_queue_delay_microseconds:
            found += f" and a delay of {self.max_queue_delay_microseconds} µs"
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The curve of one instance, and what it cost.

    Attributes:
        row_bytes: Of one row's input and output.
        is_joined: Whether the gateway joins requests, not Triton.
        busy_cores: Cores that the replica kept busy meanwhile; None: unknown.
        memory_bytes: Of the replica's processes; None: unknown.
    """

    steps: tuple[SweepStep, ...]
    stopped_because: str
    row_bytes: int
    is_joined: bool = False
    busy_cores: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A profile under way: kept between the looks at a deployment.

    Attributes:
        started_at: When the first replica was ready, seconds since 1970.
        load_s: How long that one took to be ready.
        ended_because: Why nothing more was tried, where there was more to try.
    """

    started_at: float
    load_s: float
    probe: ProbeResult | None = None
    sweep: Sweep | None = None
    trials: tuple[Trial, ...] = ()
    ended_because: str = ""


# ---------------------------------------------------------------- the sweep


def batch_sizes(most_rows: int) -> list[int]:
    """1, 2, 4, ... and `most_rows` itself."""
    sizes = [1]
    while sizes[-1] * 2 <= most_rows:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == most_rows else [*sizes, most_rows]


def why_stop(steps: Sequence[SweepStep]) -> str:
    """Why larger batches are of no use after these; empty while they may be."""
    latest = steps[-1]
    if latest.latency_ms > LATENCY_LIMIT_MS:
        return (
            f"A call of {rows_words(latest.rows)} took {latest.latency_ms:,.0f} ms; batches that "
            f"take longer than {LATENCY_LIMIT_MS:,.0f} ms are not tried."
        )
    before = max(steps[:-1], key=lambda step: step.rows_per_s, default=None)
    if before is None or latest.rows < ENOUGH_ROWS:
        return ""
    gain = latest.rows_per_s / before.rows_per_s
    if gain >= WORTH_A_LARGER_BATCH:
        return ""
    return (
        f"{latest.rows} rows in a call gave {latest.rows_per_s:,.0f} rows/s, no more than "
        f"{rows_words(before.rows)} gave ({before.rows_per_s:,.0f})."
    )


def best_step(steps: Sequence[SweepStep]) -> SweepStep:
    """The step with the most rows a second."""
    return max(steps, key=lambda step: step.rows_per_s)


def knee(steps: Sequence[SweepStep]) -> SweepStep:
    """The smallest batch with nearly all of the best throughput."""
    enough = NEARLY_BEST * best_step(steps).rows_per_s
    return next(step for step in steps if step.rows_per_s >= enough)


def gain_of_batching(steps: Sequence[SweepStep]) -> float:
    """How many times the rows of single calls the best batch gives."""
    return best_step(steps).rows_per_s / steps[0].rows_per_s


def rows_that_fit(shared_memory_bytes: int, row_bytes: int, instances: int = 1) -> int:
    """Rows of a batch that shared memory has room for, at least 1."""
    room = shared_memory_bytes / SHARE_OF_SHARED_MEMORY / instances
    return max(1, int(room / (SHARED_MEMORY_FACTOR * max(1, row_bytes))))


def threads_for(cores: int, instances: int) -> int:
    """Threads of each instance: half of the cores stay with Triton and the gateway.

    Threads of one model wait for each other at barriers, and one that lacks a core holds up all.
    """
    return max(1, cores // (2 * instances))


def queue_size(max_batch_size: int) -> int:
    """Requests that a replica is given at once: several full batches."""
    return max(LEAST_QUEUE, FULL_BATCHES_QUEUED * max_batch_size)


# ---------------------------------------------------------------- what to try


def first_setting(node: Node, input_row_bytes: int) -> Setting:
    """One instance with room for a generous batch."""
    most = rows_that_fit(node.shared_memory_bytes, input_row_bytes)
    return Setting(
        threads_per_instance=threads_for(node.cores, 1), max_batch_size=min(LARGEST_BATCH, most)
    )


def next_setting(progress: Progress, node: Node) -> Setting | None:
    """What to measure after the trials so far; None when they are enough."""
    sweep = progress.sweep
    if sweep is None or not progress.trials or progress.trials[0].failure:
        return None
    count = _next_count(progress.trials)
    if count is not None and not why_not_instances(count, sweep, node):
        return _setting(sweep, node, count, 0)
    best = best_trial(progress.trials)
    if any(trial.max_queue_delay_microseconds for trial in progress.trials):
        return None
    if why_no_delay(sweep, node):
        return None
    return _setting(sweep, node, best.instance_count, delay_to_try(sweep.steps))


def _next_count(trials: Sequence[Trial]) -> int | None:
    """The next number of instances, while the one before was worth it."""
    tried = {trial.instance_count for trial in trials}
    if best_trial(trials).instance_count != max(tried):
        return None
    return next((count for count in INSTANCE_COUNTS if count > max(tried)), None)


def _setting(sweep: Sweep, node: Node, count: int, delay_us: int) -> Setting:
    fits = rows_that_fit(node.shared_memory_bytes, sweep.row_bytes, count)
    return Setting(
        instance_count=count,
        threads_per_instance=threads_for(node.cores, count),
        max_batch_size=min(knee(sweep.steps).rows, fits),
        max_queue_delay_microseconds=delay_us,
    )


def leaves_core_free(sweep: Sweep, node: Node) -> bool:
    """Whether the model computes elsewhere than on the cores: on a GPU, or it waits."""
    if node.device is DeviceKind.CUDA:
        return True
    return sweep.busy_cores is not None and sweep.busy_cores < FREE_CORE


def why_not_instances(count: int, sweep: Sweep, node: Node) -> str:
    """Why so many instances are not even tried; empty when they may be."""
    threads = threads_for(node.cores, count)
    if not leaves_core_free(sweep, node) and count * threads > node.cores:
        return f"The model computes on the CPU, and there are {node.cores} cores."
    used = sweep.memory_bytes
    if used is None or node.memory_bytes is None:
        return ""
    needed = count * node.replicas * used
    # What the measured replica holds is free again when it ends.
    if needed > SHARE_OF_MEMORY * (node.memory_bytes + used):
        return (
            f"They would need {_gigabytes(needed)} of memory, "
            f"and {_gigabytes(node.memory_bytes + used)} are free."
        )
    return ""


def why_no_delay(sweep: Sweep, node: Node) -> str:
    """Why waiting for fuller batches is not even tried; empty when it may be."""
    if sweep.is_joined:
        return "The gateway gathers requests while the model is busy, so Triton need not wait."
    if not leaves_core_free(sweep, node):
        return "The model computes on the CPU: waiting would leave it idle."
    gain = gain_of_batching(sweep.steps)
    if gain <= DELAY_NEEDS_GAIN:
        return f"Full batches give only {gain:.1f} times the rows of single calls."
    return ""


def delay_to_try(steps: Sequence[SweepStep]) -> int:
    """A quarter of the time of one row, in whole tenths of a millisecond."""
    return max(100, round(DELAY_SHARE * steps[0].latency_ms * 10) * 100)


def under_load(setting: Setting, sweep: Sweep) -> Setting:
    """The setting as callers meet it: where the gateway joins, it sends no more than the knee."""
    if not sweep.is_joined:
        return setting
    return replace(setting, max_batch_size=min(setting.max_batch_size, knee(sweep.steps).rows))


def load_for(sweep: Sweep, trial_s: float) -> float | None:
    """How long the callers have to call for two rounds at least; None: longer than is worth it."""
    round_s = CALLERS / best_step(sweep.steps).rows_per_s
    wanted = max(trial_s, ROUNDS * round_s)
    return wanted if wanted <= LONGEST_TRIAL_S else None


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The setting to serve with: each step up has to be worth what it costs."""
    best = trials[0]
    for trial in trials[1:]:
        if trial.failure:
            continue
        is_delay = trial.max_queue_delay_microseconds > best.max_queue_delay_microseconds
        worth = WORTH_A_DELAY if is_delay else WORTH_AN_INSTANCE
        if trial.requests_per_s >= worth * best.requests_per_s:
            best = trial
    return best


def rows_words(count: int) -> str:
    """A number of rows, for a person."""
    return f"{count} row{'' if count == 1 else 's'}"


def _gigabytes(count: float) -> str:
    return f"{count / 2**30:.1f} GB"
