"""A secret on its way into a real model's environment, and nowhere else."""

from __future__ import annotations

import json
import stat
import time
import uuid
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client

from portal.accounts.models import User
from portal.endpoints import runtime
from portal.endpoints import services as endpoints
from portal.endpoints.deployment import machine
from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.models import Deployment, Endpoint, Replica
from portal.endpoints.reading import current_deployment
from portal.endpoints.states import UNDER_WAY
from portal.previews.services import set_enabled
from portal.secrets import services
from serving.errors import ModelRaised
from serving.probe import SmokeResult, smoke_test
from serving.spec import Backend
from tests.support.factories import UserFactory, make_cast, stored_version

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey", "replicas"),
    pytest.mark.triton,
]

VALUE = "correct-horse-battery-staple"
EXAMPLE = np.ones((2, 4), dtype=np.float32)
TELLTALE = """
import os

import mlflow, numpy as np
from mlflow.pyfunc import PythonModel

class Model(PythonModel):
    # Prints its secret, and answers with its length: so it has it. Raises it at what is below 0.
    def load_context(self, context):
        print("the password is", os.environ["DB_PASSWORD"], "and", os.environ["PLAIN"])

    def predict(self, context, model_input, params=None):
        if model_input.min() < 0:
            raise RuntimeError(f"no login with {os.environ['DB_PASSWORD']!r}")
        return np.full(len(model_input), len(os.environ["DB_PASSWORD"]), dtype=np.float32)

mlflow.models.set_model(Model())
"""


@pytest.fixture
def replicas() -> Iterator[None]:
    yield
    for replica_id in runtime.runtime().running():
        runtime.runtime().remove(replica_id)


@pytest.fixture
def creator() -> User:
    user: User = UserFactory(username="creator")
    services.create_scope(user, "db")
    services.put_secret(user, "db", "password", VALUE.encode())
    return user


def deploy(creator: User, backend: Backend) -> tuple[Endpoint, Deployment]:
    set_enabled("throughput_optimized", True, None)
    version = stored_version(TELLTALE, EXAMPLE)
    entity = EntityInput(
        name="main",
        entity_name=version.model.name,
        entity_version="1",
        workload_type="GPU_SMALL",
        throughput_optimized=backend is Backend.TRITON,
        environment_vars={"DB_PASSWORD": "{{secrets/db/password}}", "PLAIN": "plain-as-day"},
    )
    endpoint = endpoints.create_endpoint(creator, EndpointInput(name="e", entities=(entity,)))
    return endpoint, drive(endpoint)


def drive(endpoint: Endpoint, *, limit_s: float = 120) -> Deployment:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        deployment = current_deployment(endpoint)
        assert deployment is not None
        if deployment.state not in UNDER_WAY:
            return deployment
        again_s = machine.advance(deployment.pk, owner=uuid.uuid4().hex)
        time.sleep(again_s or 0.3)
    raise AssertionError("the deployment does not end")


@pytest.mark.parametrize("backend", [Backend.TRITON, Backend.STANDARD])
def test_the_model_gets_the_value_and_neither_log_nor_caller_does(
    creator: User, backend: Backend
) -> None:
    _, deployment = deploy(creator, backend)

    assert deployment.state == "SUCCEEDED", deployment.message
    replica = Replica.objects.get(is_wanted=True)
    assert replica.backend == backend
    assert ask(replica, EXAMPLE).rows_out == 2
    with pytest.raises(ModelRaised, match=r"no login with '\[masked\]'") as raised:
        ask(replica, -EXAMPLE)
    assert VALUE not in raised.value.message
    logged = [line.text for line in runtime.read_logs(replica, after=0, limit=5000)]
    assert any("the password is [masked] and plain-as-day" in x for x in logged)
    assert_nowhere_else(replica)
    admin = make_cast().admin
    api = Client(headers=admin.headers)
    for path in ("", "/events", "/served-models/main/logs", "/served-models/main/build-logs"):
        assert VALUE not in api.get(f"/api/2.0/serving-endpoints/e{path}").content.decode()


def ask(replica: Replica, rows: Any) -> SmokeResult:
    return smoke_test(
        address=replica.address,
        backend=Backend(replica.backend),
        signature=replica.entity.model_version.signature,  # type: ignore[union-attr]  # it is there
        body={"inputs": rows.tolist()},
        timeout_s=10,
    )


def assert_nowhere_else(replica: Replica) -> None:
    """The value stands on no disk, not even in the replica's specification."""
    specification = replica.directory / "spec.json"
    assert stat.S_IMODE(specification.stat().st_mode) == 0o600
    assert json.loads(specification.read_text())["secret_names"] == ["DB_PASSWORD"]
    holders = {
        file
        for file in Path(settings.DATA_DIR).rglob("*")
        if file.is_file() and VALUE.encode() in file.read_bytes()
    }
    assert holders == set()
    assert VALUE not in dumped()


def dumped() -> str:
    """All rows of the database."""
    out = StringIO()
    call_command("dumpdata", stdout=out)
    return out.getvalue()


def test_a_secret_that_is_gone_fails_the_next_deployment_and_the_old_one_serves(
    creator: User,
) -> None:
    endpoint, first = deploy(creator, Backend.STANDARD)
    assert first.state == "SUCCEEDED", first.message
    services.delete_secret(creator, "db", "password")

    endpoint.refresh_from_db()
    endpoints.retry_deployment(creator, endpoint)
    again = drive(endpoint)

    assert again.state == "FAILED"
    assert (again.failed_step, again.error_code) == ("PREPARE", "SECRET_UNAVAILABLE")
    assert "secret scope “db” has no key “password”. Put it first." in again.message
    endpoint.refresh_from_db()
    assert (endpoint.ready, endpoint.config_update) == ("READY", "UPDATE_FAILED")
