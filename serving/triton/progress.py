"""Tells a model that hangs from one that is slow: Triton says that it is ready either way.

A batch that takes longer than callers wait has nobody left to answer, but that alone is no proof: a
slow model may still come to its end, and would be as slow after a restart. So it has to last longer
than that *and* use no processor meanwhile, or last several times as long. The shim marks when each
instance begins and ends a batch (`serving/triton/shim/shoal_busy.py`); requests that wait at Triton
while nothing is begun or done count too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARGIN_S = 5.0
"""Beyond the callers' timeout, so that the last of them has its answer."""

BUSY_FACTOR = 5
"""How many of the callers' timeouts a batch may last while it uses the processor."""

IDLE_SHARE = 0.02
"""Of one processor: less is none. A thread that wakes up now and then is no progress."""

LEAST_S = 1.0
"""Shorter batches are not worth a look."""

_MARK = struct.Struct("<dq")


@dataclass(frozen=True, slots=True)
class Execution:
    """A batch under way: which process has it, and since when (monotonic seconds)."""

    pid: int
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is seen of a server's work at one moment.

    Attributes:
        waiting: Requests in Triton's queue.
        done: Grows with each request that was answered.
        cpu_s: Processor seconds of each of the model's processes until now.
    """

    executions: Sequence[Execution]
    waiting: float
    done: float
    cpu_s: Mapping[int, float]


class HangWatch:
    """Remembers what it was shown, and says when a model hangs.

    Args:
        request_timeout_s: As long as callers wait.
    """

    def __init__(self, request_timeout_s: float) -> None:
        self._idle_s = request_timeout_s + MARGIN_S
        self._busy_s = max(self._idle_s, BUSY_FACTOR * request_timeout_s)
        self._cpu_at: dict[Execution, float] = {}
        self._quiet: tuple[float, float, float] | None = None  # since, done, processor seconds

    def judge(self, work: Work, now: float) -> str | None:
        """The evidence that it hangs, None while there is none."""
        known = self._cpu_at
        self._cpu_at = {
            execution: known.get(execution, work.cpu_s.get(execution.pid, 0.0))
            for execution in work.executions
        }
        for execution, before in self._cpu_at.items():
            used_s = work.cpu_s.get(execution.pid, 0.0) - before
            told = self._tell("has worked on one batch for", now - execution.since, used_s)
            if told is not None:
                return told
        return self._judge_queue(work, now)

    def _judge_queue(self, work: Work, now: float) -> str | None:
        used_s = sum(work.cpu_s.values())
        if not work.waiting or work.executions:
            self._quiet = None
        elif self._quiet is None or self._quiet[1] != work.done:
            self._quiet = (now, work.done, used_s)
        else:
            since, _, before = self._quiet
            return self._tell("has left requests waiting for", now - since, used_s - before)
        return None

    def _tell(self, what: str, lasted_s: float, used_s: float) -> str | None:
        if lasted_s < self._idle_s:
            return None
        # What was used before the first look is not counted, nor is the time until then.
        if used_s <= IDLE_SHARE * lasted_s:
            return f"The model {what} {lasted_s:.0f} s without using the processor: it hangs."
        if lasted_s >= self._busy_s:
            return f"The model {what} {lasted_s:.0f} s, longer than any caller waits: it hangs."
        return None


def read_executions(directory: Path, now: float) -> list[Execution]:
    """The batches that the shim's marks in the server's working folder tell of; none just begun."""
    found = []
    for file in directory.glob("busy-*"):
        try:
            since, pid = _MARK.unpack(file.read_bytes())
        except (OSError, struct.error):
            continue  # being written, or gone
        if since and now - since >= LEAST_S:
            found.append(Execution(pid, since))
    return found
