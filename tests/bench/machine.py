"""The machine in words, as a table of figures needs it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path


def machine() -> str:
    """Cores, processor, memory and system."""
    cores = len(os.sched_getaffinity(0))
    processor = _find("/proc/cpuinfo", r"^model name\s*: (.+)$") or platform.machine()
    memory = int(_find("/proc/meminfo", r"^MemTotal:\s*(\d+)") or 0) / 2**20
    system = _find("/etc/os-release", r'^PRETTY_NAME="?([^"\n]+)') or platform.system()
    return (
        f"{cores} core{'s' * (cores > 1)} of {' '.join(processor.split())}, {memory:.0f} GiB, "
        f"{system}, Python {platform.python_version()}"
    )


def _find(path: str, pattern: str) -> str:
    file = Path(path)
    found = re.search(pattern, file.read_text(), re.M) if file.exists() else None
    return found[1] if found else ""
