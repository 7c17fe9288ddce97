"""Starts real replicas of models that a test module writes down as source text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serving.runtime.processes import ProcessRuntime
from serving.spec import PythonEnvironment, ReplicaState
from tests.support.model_environment import save_model
from tests.support.replicas import SavedModel, make_spec, wait_for_state


class Launcher:
    """Starts a replica of a model and knows what the control plane would publish of it."""

    def __init__(self, runtime: ProcessRuntime, environment: PythonEnvironment, path: Path) -> None:
        self.runtime, self.environment, self.path = runtime, environment, path
        self.models: dict[str, SavedModel] = {}

    def start(self, replica_id: str, source: str, signature: Any, **changes: Any) -> str:
        """The address of a ready replica."""
        directory = self.path / f"model-{replica_id}"
        found = save_model(directory, source, **({"signature": signature} if signature else {}))
        self.models[replica_id] = SavedModel(directory=directory, signature=found)
        return self.launch(replica_id, self.models[replica_id], **changes)

    def launch(self, replica_id: str, model: SavedModel, **changes: Any) -> str:
        """The address of a ready replica of a saved model."""
        spec = make_spec(replica_id, self.environment, model, **changes)
        self.runtime.launch(spec)
        status = wait_for_state(self.runtime, replica_id, ReplicaState.READY, ReplicaState.CRASHED)
        assert status.state is ReplicaState.READY, status.message
        assert status.address is not None
        return status.address
