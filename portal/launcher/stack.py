"""Everything that runs on one machine: Valkey, web processes, task workers, beat, and replicas."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import redis
from django.conf import settings

from portal.launcher.children import Child, stop_in_order
from portal.launcher.redis_server import redis_command
from serving.runtime.processes import ProcessRuntime

MALLOC = {
    # Bodies of several megabytes: keep freed memory instead of giving it back and faulting it in.
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_TOP_PAD_": "67108864",
}
QUEUES = {"tasks": "default", "builds": "staging,builds"}
"""Worker name to its queues: long unpacking never keeps a deployment waiting."""
REPLICA_GRACE_S = 20.0
TASK_GRACE_S = 5.0  # tasks can be cut off anywhere: the reconcilers send them again

Say = Callable[[str], None]


class CannotStart(Exception):
    """The stack cannot start; the message says what to change."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        CannotStart: The port is taken, or the host is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        raise CannotStart(
            f"Cannot listen on {host} port {port}: {exc.strerror}. "
            "Set SHOAL_PORT to a free port (or SHOAL_HOST), or stop what uses it."
        ) from exc
    sock.listen(2048)
    sock.set_inheritable(True)
    return sock


def lock(data_dir: Path) -> IO[str]:
    """The lock of a data directory, held until the file is closed.

    Raises:
        CannotStart: Another Shoal runs on it.
    """
    file = (data_dir / "up.lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        raise CannotStart(
            f"Shoal already runs on this data directory (pid {file.read().strip()}). "
            "Stop it, or set SHOAL_DATA_DIR to another one."
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _require_own(folder: Path) -> None:
    """Refuse a folder, perhaps in /tmp, in which another user could put a socket of his own.

    Raises:
        CannotStart: It is another user's.
    """
    if folder.stat().st_uid != os.getuid():
        raise CannotStart(f"{folder} belongs to another user. Remove it, or set REDIS_URL.")


class Stack:
    """Starts all parts in order, keeps them alive, stops them in the opposite order."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.data_dir = Path(settings.DATA_DIR)
        self.socket: socket.socket | None = None
        self.lock: IO[str] | None = None
        self.redis: list[Child] = []
        self.parts: list[Child] = []

    def claim(self) -> None:
        """Take the data directory and the port, so that a conflict shows before anything starts."""
        self.lock = lock(self.data_dir)
        self.socket = listen(settings.HOST, settings.PORT)

    def start_redis(self) -> None:
        """Start the bundled server, unless REDIS_URL names another; wait until it answers."""
        if settings.HAS_OWN_REDIS:
            directory = self.data_dir / "valkey"
            directory.mkdir(parents=True, exist_ok=True)
            settings.VALKEY_SOCKET.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _require_own(settings.VALKEY_SOCKET.parent)
            command = redis_command(settings.VALKEY_SOCKET, directory)
            self.redis = [self._child("valkey", command)]
            self.redis[0].start()
        client = redis.Redis.from_url(settings.REDIS_URL)
        end = time.monotonic() + 30
        while True:
            try:
                client.ping()
                return
            except redis.RedisError as exc:
                if time.monotonic() > end:
                    raise CannotStart(f"Redis does not answer at {settings.REDIS_URL}.") from exc
                for child in self.redis:
                    child.look_after(self.say)
                time.sleep(0.05)

    def start(self) -> None:
        """Start web processes, task workers and beat; `claim` and `start_redis` come first."""
        if self.socket is None:
            raise RuntimeError("claim() first")
        fd = self.socket.fileno()
        for number in range(1, settings.WEB_WORKERS + 1):
            command = [sys.executable, "-m", "portal.launcher.web", str(fd)]
            web = self._child(f"web-{number}", command)
            web.pass_fds, web.environment = (fd,), MALLOC
            self.parts.append(web)
        celery = [sys.executable, "-m", "celery", "-A", "portal"]
        share = {"tasks": settings.TASK_WORKERS - 1, "builds": 1}
        for name, queues in QUEUES.items():
            options = ["-Q", queues, "-c", str(share[name]), "-n", f"{name}@%h", "-l", "INFO"]
            quiet = ["--without-gossip", "--without-mingle"]
            worker = self._child(name, [*celery, "worker", *options, *quiet])
            worker.grace_s = TASK_GRACE_S
            self.parts.append(worker)
        self.parts.append(self._child("beat", [*celery, "beat", "--pidfile=", "-l", "INFO"]))
        for part in self.parts:
            part.start()

    def look_after(self) -> None:
        """Start again what ended; call it a few times a second."""
        for child in (*self.redis, *self.parts):
            child.look_after(self.say)

    def stop(self) -> None:
        """Stop everything this stack started, replicas included."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.say("stopping: web, task workers and beat, then replicas, then Valkey")
        stop_in_order(self.parts)
        self._stop_replicas()
        stop_in_order(self.redis)
        if self.socket is not None:
            self.socket.close()
        if self.lock is not None:
            self.lock.close()
        self.say("stopped")

    def _stop_replicas(self) -> None:
        runtime = ProcessRuntime(Path(settings.REPLICAS_DIR), settings.REDIS_URL)
        left = runtime.running()
        for replica_id in left:
            runtime.stop(replica_id)
        end = time.monotonic() + REPLICA_GRACE_S
        while left and time.monotonic() < end:
            time.sleep(0.1)
            left = runtime.running()
        for replica_id in left:
            runtime.kill(replica_id)

    def _child(self, name: str, command: list[str]) -> Child:
        return Child(name=name, command=command, log_file=self.data_dir / "logs" / f"{name}.log")
