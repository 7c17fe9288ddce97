"""Drive deployments with real replicas, as the tasks would; nothing of them is left."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import redis

from portal.endpoints import runtime, services
from portal.endpoints.deployment import machine
from portal.endpoints.deployment.reconcile import reconcile
from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.models import Deployment, Endpoint, Replica, ServedEntity
from portal.endpoints.reading import current_deployment, triton_view
from portal.endpoints.states import UNDER_WAY
from portal.previews.services import set_enabled
from portal.registry.models import ModelVersion
from serving import bus
from serving.errors import ServingError
from serving.probe import smoke_test
from serving.spec import Backend, Route, from_json
from tests.support.factories import UserFactory

EXAMPLE = np.arange(8, dtype=np.float32).reshape(2, 4)
SUM = """
import mlflow, numpy as np
from mlflow.pyfunc import PythonModel

class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        return np.asarray(model_input, dtype=np.float32).sum(axis=1)

mlflow.models.set_model(Model())
"""


@pytest.fixture
def replicas() -> Iterator[None]:
    yield
    for replica_id in runtime.runtime().running():
        runtime.runtime().remove(replica_id)


@pytest.fixture
def preview() -> None:
    set_enabled("throughput_optimized", True, None)


def wanted(version: ModelVersion, **fields: Any) -> EntityInput:
    return EntityInput(
        **{
            "name": "main",
            "entity_name": version.model.name,
            "entity_version": str(version.version),
            "workload_type": "GPU_SMALL",
            "throughput_optimized": True,
            **fields,
        }
    )


def create(version: ModelVersion, **fields: Any) -> Endpoint:
    user = UserFactory()
    entity = wanted(version, **fields)
    return services.create_endpoint(user, EndpointInput(name="sum", entities=(entity,)))


def advance(endpoint: Endpoint) -> float | None:
    deployment = endpoint.deployments.filter(state__in=UNDER_WAY).first()
    return machine.advance(deployment.pk, owner=uuid.uuid4().hex) if deployment else None


def drive(endpoint: Endpoint, *, limit_s: float = 90) -> Deployment:
    """Advance the deployment as its task would, until it ends."""
    end = time.monotonic() + limit_s
    while True:
        again_s = advance(endpoint)
        deployment = current_deployment(endpoint)
        assert deployment is not None
        if deployment.state not in UNDER_WAY:
            endpoint.refresh_from_db()
            return deployment
        steps = [f"{step.name} {step.state} {step.message}" for step in deployment.steps.all()]
        assert time.monotonic() < end, steps
        time.sleep(again_s or 0.3)


def eventually(check: Callable[[], bool], *, limit_s: float = 30, each: Any = reconcile) -> None:
    """Reconcile, as the beat does, until `check` holds."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        each()
        if check():
            return
        time.sleep(0.5)
    raise AssertionError("it did not come about")


def active_entity(endpoint: Endpoint) -> ServedEntity:
    endpoint.refresh_from_db()
    assert endpoint.active_config is not None
    return endpoint.active_config.entities.get()


def serving_replica(endpoint: Endpoint) -> Replica:
    return Replica.objects.get(entity=active_entity(endpoint), is_wanted=True)


def route_of(client: redis.Redis, endpoint: Endpoint) -> Route:
    text = client.hget(bus.ROUTES, endpoint.name)
    assert isinstance(text, str)
    return from_json(Route, text)


def answers(endpoint: Endpoint) -> bool:
    """Whether the replica that the route names answers."""
    replica = serving_replica(endpoint)
    entity = replica.entity
    assert entity.model_version is not None
    try:
        result = smoke_test(
            address=replica.address,
            backend=Backend(replica.backend),
            signature=entity.model_version.signature,
            body={"inputs": EXAMPLE.tolist()},
            timeout_s=5,
        )
    except ServingError:
        return False
    return result.rows_out == 2


def triton_of(endpoint: Endpoint) -> tuple[str, str]:
    view = triton_view(active_entity(endpoint))
    return view.status.value, view.reason_code
