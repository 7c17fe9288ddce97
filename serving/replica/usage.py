"""How much of its node a replica uses: processors, memory, GPUs (Linux).

Percentages are of what the replica may use: the processors that it is allowed, the memory of the
machine or of its container, the GPUs that it was given.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.replica.processes import PROC
from serving.spec import Device, DeviceKind, GpuUsage, Usage

log = logging.getLogger(__name__)

LEAST_SPAN_S = 3.5
"""A shorter one says little, and reading every process's state is not free."""

CGROUP = Path("/sys/fs/cgroup")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    ticks: int


class UsageMeter:
    """Measures from one call to the next."""

    def __init__(self, device: Device) -> None:
        self._ticks: dict[int, int] = {}
        self._at: float | None = None
        self._processors = _processors()
        self._memory_bytes = _memory_bytes()
        self._gpus = Gpus(device)

    def measure(self, pid: int) -> Usage | None:
        """What the process and all below it used lately.

        Returns:
            None at the first call, and when the last measurement was only just now.
        """
        now, before = time.monotonic(), self._at
        if before is not None and now - before < LEAST_SPAN_S:
            return None
        table = _processes()
        tree = _below(pid, table)
        ticks = {one: table[one].ticks for one in tree}
        spent = sum(count - self._ticks.get(one, count) for one, count in ticks.items())
        self._ticks, self._at = ticks, now
        if before is None:
            return None
        memory_bytes = _memory_of(tree)
        return Usage(
            cpu_percent=_percent(spent / TICKS_A_SECOND, (now - before) * self._processors),
            memory_bytes=memory_bytes,
            memory_percent=_percent(memory_bytes, self._memory_bytes),
            gpus=self._gpus.measure(),
        )


def _percent(part: float, whole: float) -> float:
    return round(min(100.0, 100 * part / whole), 2) if whole else 0.0


def _processes() -> dict[int, _Process]:
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text(errors="replace")
            except OSError:
                continue  # it ended meanwhile
            parts = text.rpartition(")")[2].split()  # the name before may hold anything
            found[int(entry.name)] = _Process(int(parts[1]), int(parts[11]) + int(parts[12]))
    return found


def _below(pid: int, table: Mapping[int, _Process]) -> list[int]:
    children: dict[int, list[int]] = {}
    for one, process in table.items():
        children.setdefault(process.parent, []).append(one)
    found, waiting = [], [pid] if pid in table else []
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children.get(one, ())
    return found


def _memory_of(pids: list[int]) -> int:
    """Resident memory; what the processes share counts once, as much as the one that has most."""
    own, shared = 0, 0
    for pid in pids:
        try:
            parts = (PROC / str(pid) / "statm").read_text().split()
        except OSError:
            continue
        own += int(parts[1]) - int(parts[2])
        shared = max(shared, int(parts[2]))
    return (own + shared) * PAGE_BYTES


def _processors() -> float:
    allowed = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return allowed if quota == "max" else min(allowed, int(quota) / int(period))
    except (OSError, ValueError):
        return allowed


def _memory_bytes() -> int:
    total = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        return total if limit == "max" else min(total, int(limit))
    except (OSError, ValueError):
        return total


# ---------------------------------------------------------------- GPUs


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Gpus:
    """The replica's GPUs, asked through the driver's own library (NVML)."""

    def __init__(self, device: Device) -> None:
        self._indices = device.indices if device.kind is DeviceKind.CUDA else ()
        self._nvml: ctypes.CDLL | None = None
        if self._indices:
            try:
                self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
                self._check(self._nvml.nvmlInit_v2())
            except OSError as exc:
                log.warning("the use of GPUs is not measured: %s", exc)
                self._nvml = None

    def measure(self) -> tuple[GpuUsage, ...]:
        """How busy and how full each GPU is, by whoever uses it; none where it cannot be told."""
        found = []
        if self._nvml is not None:
            try:
                found = [self._ask(self._nvml, index) for index in self._indices]
            except OSError as exc:
                log.warning("the use of GPUs is no longer measured: %s", exc)
                self._nvml = None
        return tuple(found)

    def _ask(self, nvml: ctypes.CDLL, index: int) -> GpuUsage:
        handle, busy, memory = ctypes.c_void_p(), _Utilization(), _Memory()
        self._check(nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)))
        self._check(nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(busy)))
        self._check(nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)))
        return GpuUsage(
            index=index,
            busy_percent=float(busy.gpu),
            memory_bytes=memory.used,
            memory_percent=_percent(memory.used, memory.total),
        )

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise OSError(f"NVML answered {code}")
