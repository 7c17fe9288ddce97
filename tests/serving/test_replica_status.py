"""A replica's status reaches Redis and a file; a missing Redis never delays it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from serving import bus
from serving.replica.status import StatusPublisher, read_status
from serving.spec import Backend, ReplicaState, ReplicaStatus, from_json
from tests.support.replicas import wait_for
from tests.support.valkey import Valkey

STATUS = ReplicaStatus(
    replica_id="abcde",
    state=ReplicaState.STARTING,
    backend=Backend.TRITON,
    message="Loading the model.",
    beat_at=1.0,
    started_at=1.0,
)
READY = replace(STATUS, state=ReplicaState.READY)


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[Valkey]:
    """A Valkey that the test starts and kills itself."""
    server = Valkey(tmp_path / "own.sock")
    yield server
    server.kill()


@pytest.fixture
def publisher(tmp_path: Path, own_valkey: Valkey) -> Iterator[StatusPublisher]:
    """A publisher that knows `own_valkey`, which does not run yet."""
    publisher = StatusPublisher(tmp_path, own_valkey.url)
    yield publisher
    publisher.close()


def published(server: Valkey) -> ReplicaStatus | None:
    """What Redis holds."""
    with redis.Redis.from_url(server.url) as client:
        text = client.get(bus.replica_status_key("abcde"))
    assert text is None or isinstance(text, bytes)
    return None if text is None else from_json(ReplicaStatus, text)


def state_of(server: Valkey) -> ReplicaState | None:
    """The state that Redis holds."""
    status = published(server)
    return None if status is None else status.state


def test_a_change_is_written_and_announced_at_once(
    publisher: StatusPublisher, own_valkey: Valkey, tmp_path: Path
) -> None:
    own_valkey.start()
    with redis.Redis.from_url(own_valkey.url, decode_responses=True) as client:
        changes = client.pubsub(ignore_subscribe_messages=True)
        changes.subscribe(bus.REPLICA_CHANGES)
        changes.get_message(timeout=1)

        publisher.publish(READY)

        assert publisher.flush(2.0)
        assert state_of(own_valkey) is ReplicaState.READY
        message = changes.get_message(timeout=2)
        assert message is not None
        assert message["data"] == "abcde"
        changes.close()
    written = read_status(tmp_path)
    assert written is not None
    assert written.state is ReplicaState.READY


def test_it_beats_and_expires(publisher: StatusPublisher, own_valkey: Valkey) -> None:
    own_valkey.start()
    publisher.publish(READY)
    publisher.flush(2.0)
    first = published(own_valkey)
    assert first is not None

    def has_beaten() -> bool:
        status = published(own_valkey)
        return status is not None and status.beat_at > first.beat_at

    wait_for(has_beaten, timeout_s=20)
    with redis.Redis.from_url(own_valkey.url) as client:
        assert 0 < int(str(client.ttl(bus.replica_status_key("abcde")))) <= bus.REPLICA_STATUS_TTL_S


def test_redis_may_come_late_and_go_and_come_back(
    publisher: StatusPublisher, own_valkey: Valkey, tmp_path: Path
) -> None:
    publisher.publish(STATUS)
    assert read_status(tmp_path) is not None
    assert publisher.flush(3.0)  # it was tried, and given up

    own_valkey.start()
    wait_for(lambda: state_of(own_valkey) is ReplicaState.STARTING, timeout_s=20)
    own_valkey.kill()
    publisher.publish(READY)
    written = read_status(tmp_path)
    assert written is not None
    assert written.state is ReplicaState.READY
    own_valkey.start()
    wait_for(lambda: state_of(own_valkey) is ReplicaState.READY, timeout_s=20)


def test_a_broken_status_file_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text("{half")

    assert read_status(tmp_path) is None
