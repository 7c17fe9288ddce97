"""A model, its environment and a place for real replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.runtime.processes import ProcessRuntime
from serving.spec import PythonEnvironment
from tests.support.model_environment import make_environment
from tests.support.replicas import SavedModel, save_doubling_model


@pytest.fixture(scope="session")
def model_environment(tmp_path_factory: pytest.TempPathFactory) -> PythonEnvironment:
    """An environment that runs MLflow models."""
    return make_environment(tmp_path_factory.mktemp("environment") / "env")


@pytest.fixture(scope="session")
def doubling_model(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    """The model that replicas serve in tests."""
    return save_doubling_model(tmp_path_factory.mktemp("models") / "doubling")


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[ProcessRuntime]:
    """A runtime of the test's own, with Redis away; nothing of it is left."""
    runtime = ProcessRuntime(tmp_path / "replicas", "redis://127.0.0.1:1")
    yield runtime
    for replica_id in runtime.running():
        runtime.kill(replica_id)
