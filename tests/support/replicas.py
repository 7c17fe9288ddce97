"""Real replicas for tests: specs, one small model with switchable faults, and waiting."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from serving.runtime.processes import ProcessRuntime
from serving.spec import (
    Backend,
    Batching,
    Device,
    DeviceKind,
    PythonEnvironment,
    ReplicaSpec,
    ReplicaState,
    ReplicaStatus,
)
from tests.support.model_environment import save_model

FAULT = "TEST_FAULT"

DOUBLING = f"""
import os
import time

import mlflow


class Doubling(mlflow.pyfunc.PythonModel):
    # Twice its input; -N in the first place makes it take N seconds.

    def load_context(self, context):
        print("the model says hello, token", os.environ.get("TEST_TOKEN"))
        fault = os.environ.get("{FAULT}")
        if fault == "import":
            import no_such_module
        if fault == "sleep":
            time.sleep(600)

    def predict(self, context, model_input, params=None):
        if model_input.flat[0] < 0:
            time.sleep(-float(model_input.flat[0]))
        return model_input * 2


mlflow.models.set_model(Doubling())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model on disk."""

    directory: Path
    signature: dict[str, Any] | None


def save_doubling_model(directory: Path) -> SavedModel:
    """Save the model that tests serve; its input is float32 `[-1, 3]`."""
    signature = save_model(directory, DOUBLING, np.zeros((1, 3), dtype=np.float32))
    return SavedModel(directory=directory, signature=signature)


def make_spec(
    replica_id: str,
    environment: PythonEnvironment,
    model: SavedModel,
    *,
    backend: Backend = Backend.TRITON,
    **changes: Any,
) -> ReplicaSpec:
    """A spec with defaults for everything; the runtime sets the directory."""
    values: dict[str, Any] = {
        "replica_id": replica_id,
        "directory": Path("unset"),
        "endpoint_id": "an-endpoint-id",
        "endpoint_name": "an-endpoint",
        "served_entity_name": "doubling-1",
        "config_version": 1,
        "backend": backend,
        "model_directory": model.directory,
        "environment": environment,
        "signature": model.signature,
        "environment_variables": {},
        "device": Device(kind=DeviceKind.CPU_EMULATION),
        "batching": Batching(),
        "max_in_flight": 4,
        "redis_url": "redis://127.0.0.1:1",  # nobody is there
        "start_deadline_s": 60.0,
        "drain_deadline_s": 15.0,
    }
    return ReplicaSpec(**values | changes)


def wait_for(condition: Callable[[], bool], *, timeout_s: float = 150.0) -> None:
    """Wait until `condition` holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not come true within {timeout_s} s")
        time.sleep(0.05)


def wait_for_state(
    runtime: ProcessRuntime, replica_id: str, *states: ReplicaState, restarts: int = 0
) -> ReplicaStatus:
    """Wait until the replica is in one of these states, with at least so many restarts."""
    found: list[ReplicaStatus] = []

    def is_there() -> bool:
        status = runtime.status(replica_id)
        if status is None or status.state not in states or status.restarts < restarts:
            return False
        found.append(status)
        return True

    try:
        wait_for(is_there)
    except TimeoutError as exc:
        raise TimeoutError(f"not in {states}: {runtime.status(replica_id)}") from exc
    return found[-1]


def infer(address: str | None, row: list[float], *, timeout_s: float = 30.0) -> int:
    """Send one row straight to Triton; gives the HTTP status."""
    body = {"inputs": [{"name": "input", "shape": [1, 3], "datatype": "FP32", "data": row}]}
    return post(address, "/v2/models/model/infer", body, timeout_s=timeout_s)[0]


def post(
    address: str | None, path: str, body: object, *, timeout_s: float = 30.0
) -> tuple[int, str]:
    """POST JSON to a replica; gives (status, body)."""
    connection = http.client.HTTPConnection(address or "", timeout=timeout_s)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
