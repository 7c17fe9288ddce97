"""What a replica's processes use, and what its machine has left; None where it cannot be seen.

A replica may run on another machine, so everything here may answer None.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from serving.spec import Device, DeviceKind

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the kernel puts it, not a temporary file
UNKNOWN_SHARED_MEMORY = 64 * 2**20
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of a process and all below it."""

    cpu_s: float
    memory_bytes: int


def usage_of(pid: int | None) -> Usage | None:
    """What the process and its descendants have used so far; None when it is not here."""
    found = _family(pid)
    if not found:
        return None
    return Usage(
        cpu_s=sum(stat[1] for stat in found.values()) / TICKS,
        memory_bytes=sum(stat[2] for stat in found.values()) * PAGE_BYTES,
    )


def memory_of(pid: int | None, device: Device) -> int | None:
    """The device's memory that the process and its descendants hold; None: it cannot be seen."""
    found = _family(pid)
    if not found:
        return None
    if device.kind is not DeviceKind.CUDA:
        return sum(stat[2] for stat in found.values()) * PAGE_BYTES
    rows = _nvidia_smi("--query-compute-apps=pid,used_memory")
    held = [int(row[1]) for row in rows if len(row) == 2 and int(row[0]) in found]
    return sum(held) * 2**20 or None


def _family(pid: int | None) -> dict[int, tuple[int, int, int]]:
    """The process and its descendants."""
    if pid is None:
        return {}
    every = {int(e.name): stat for e in PROC.iterdir() if e.name.isdigit() and (stat := _stat(e))}
    family: set[int] = {pid} & every.keys()
    grown = bool(family)
    while grown:
        more = {p for p, stat in every.items() if stat[0] in family} - family
        family, grown = family | more, bool(more)
    return {member: every[member] for member in family}


def _stat(entry: Path) -> tuple[int, int, int] | None:
    """Parent, ticks on a core, resident pages."""
    try:
        text = (entry / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[21])


def free_shared_memory_bytes() -> int:
    """Free shared memory of this machine."""
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError:
        return UNKNOWN_SHARED_MEMORY
    return found.f_bavail * found.f_frsize


def free_memory_bytes(device: Device) -> int | None:
    """Free memory of the device: of the GPUs, or of the machine."""
    if device.kind is DeviceKind.CUDA:
        return _free_gpu_memory_bytes(device)
    free = [found for found in (_available_bytes(), _cgroup_bytes()) if found is not None]
    return min(free, default=None)


def _available_bytes() -> int | None:
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:")), None)


def _cgroup_bytes() -> int | None:
    """What a container's limit leaves; its page cache can be given back."""
    try:
        most = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
        rows = [row.split() for row in (CGROUP / "memory.stat").read_text().splitlines()]
    except (OSError, ValueError):
        return None
    if most == "max":
        return None
    cache = next((int(row[1]) for row in rows if row[0] == "inactive_file"), 0)
    return max(0, int(most) - used + cache)


def _free_gpu_memory_bytes(device: Device) -> int | None:
    indices = ",".join(map(str, device.indices))
    rows = _nvidia_smi("--query-gpu=memory.free", "-i", indices)
    return min((int(row[0]) for row in rows), default=0) * 2**20 or None


def _nvidia_smi(*arguments: str) -> list[list[str]]:
    """Rows of whole numbers; none where the driver does not tell."""
    command = ["nvidia-smi", *arguments, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [row for row in rows if all(cell.isdigit() for cell in row)]
