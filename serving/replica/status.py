"""Tell the world how a replica is: to Redis and to a file, every 2 s and at each change.

Redis may be slow or away; that never delays the supervisor, and the file holds the same.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from serving import bus
from serving.spec import ReplicaStatus, from_json, to_json

log = logging.getLogger(__name__)

STATUS_FILE = "status.json"
BEAT_S = 2.0
REDIS_TIMEOUT_S = 1.0


def read_status(directory: Path) -> ReplicaStatus | None:
    """Give what the replica in `directory` last said, None when it never said anything."""
    try:
        return from_json(ReplicaStatus, (directory / STATUS_FILE).read_text())
    except (OSError, ValueError):
        return None


def connect(redis_url: str) -> redis.Redis:
    """A client that gives up soon: waiting for Redis helps nobody here."""
    return redis.Redis.from_url(
        redis_url,
        decode_responses=True,
        socket_timeout=REDIS_TIMEOUT_S,
        socket_connect_timeout=REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


class StatusPublisher:
    """Publishes the latest status from a thread of its own."""

    def __init__(self, directory: Path, redis_url: str) -> None:
        self._file = directory / STATUS_FILE
        self._redis = connect(redis_url)
        self._condition = threading.Condition()
        self._status: ReplicaStatus | None = None
        self._changes = 0  # how often the status was changed, and how much of that was told
        self._told = 0
        self._is_redis_away = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)

    def publish(self, status: ReplicaStatus) -> None:
        """Write the file now, tell Redis as soon as it listens; never waits for it."""
        with self._condition:
            self._write_file(status)
            self._status = status
            self._changes += 1
            if not self._thread.is_alive():
                self._thread.start()
            self._condition.notify_all()

    def amend(self, status: ReplicaStatus) -> None:
        """Let the next beat carry it; nothing is announced."""
        with self._condition:
            self._status = status

    def flush(self, timeout_s: float) -> bool:
        """Wait until Redis was told the latest, or could not be; False when it takes longer."""
        with self._condition:
            return self._condition.wait_for(lambda: self._told >= self._changes, timeout_s)

    def close(self) -> None:
        """Tell the latest once more and end."""
        self.flush(2 * REDIS_TIMEOUT_S)
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        self._thread.join(2 * REDIS_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: self._is_closed or self._told < self._changes, BEAT_S
                )
                if self._is_closed or self._status is None:
                    return
                changes, is_change = self._changes, self._told < self._changes
                status = replace(self._status, beat_at=time.time())
                self._write_file(status)
            self._tell_redis(status, is_change=is_change)
            with self._condition:
                self._told = changes
                self._condition.notify_all()

    def _write_file(self, status: ReplicaStatus) -> None:
        draft = self._file.with_suffix(".draft")
        with contextlib.suppress(OSError):  # a full disk must not end a serving replica
            draft.write_text(to_json(status))
            draft.replace(self._file)

    def _tell_redis(self, status: ReplicaStatus, *, is_change: bool) -> None:
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                key = bus.replica_status_key(status.replica_id)
                pipe.set(key, to_json(status), ex=bus.REPLICA_STATUS_TTL_S)
                if is_change or self._is_redis_away:
                    pipe.publish(bus.REPLICA_CHANGES, status.replica_id)
                pipe.execute()
        except (redis.RedisError, OSError) as exc:
            if not self._is_redis_away:
                log.warning("Redis does not answer, the replica serves on: %s", exc)
            self._is_redis_away = True
        else:
            if self._is_redis_away:
                log.info("Redis answers again")
            self._is_redis_away = False
