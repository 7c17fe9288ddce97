"""A real Valkey for tests."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import redis

from portal.launcher.redis_server import find_redis_server


class Valkey:
    """A Valkey server on a unix socket, without persistence."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.url = f"unix://{socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = subprocess.Popen(
            [find_redis_server(), "--port", "0", "--unixsocket", str(self.socket), "--save", ""],
            stdout=subprocess.DEVNULL,
        )
        client = redis.Redis.from_url(self.url)
        for _ in range(200):
            try:
                client.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.05)
        raise RuntimeError("Valkey does not start")

    def kill(self) -> None:
        """Kill it without notice."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
