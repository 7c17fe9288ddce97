"""A gateway of the test's own, the control plane's side of it, and replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.support.gateway import GatewayServer, Publisher, StandInReplica
from tests.support.valkey import Valkey


@pytest.fixture
def publisher(valkey: redis.Redis) -> Publisher:
    """What the control plane publishes; a querier's token is there."""
    publisher = Publisher(valkey)
    publisher.begin()
    return publisher


@pytest.fixture
def start_gateway(
    valkey_server: Valkey, publisher: Publisher
) -> Iterator[Callable[..., GatewayServer]]:
    """Starts a gateway with these settings."""
    servers: list[GatewayServer] = []

    def start(**settings: Any) -> GatewayServer:
        settings.setdefault("redis_url", valkey_server.url)
        server = GatewayServer(**settings)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def gateway(start_gateway: Callable[..., GatewayServer]) -> GatewayServer:
    """A gateway with the usual settings."""
    return start_gateway()


@pytest.fixture
def replica() -> Iterator[StandInReplica]:
    """A stand-in replica, for faults."""
    stand_in = StandInReplica()
    yield stand_in
    stand_in.stop()
