"""A gateway of the test's own, the control plane's side of it, and replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from serving.runtime.processes import ProcessRuntime
from serving.spec import PythonEnvironment
from tests.support.gateway import GatewayServer, Publisher, StandInReplica
from tests.support.launcher import Launcher
from tests.support.model_environment import make_environment
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


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> PythonEnvironment:
    return make_environment(tmp_path_factory.mktemp("environment") / "env")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessRuntime]:
    runtime = ProcessRuntime(tmp_path_factory.mktemp("replicas"), "redis://127.0.0.1:1")
    yield runtime
    for replica_id in runtime.running():
        runtime.kill(replica_id)


@pytest.fixture(scope="module")
def launcher(
    runtime: ProcessRuntime,
    environment: PythonEnvironment,
    tmp_path_factory: pytest.TempPathFactory,
) -> Launcher:
    return Launcher(runtime, environment, tmp_path_factory.mktemp("models"))
