"""Deployments with real processes: Triton, MLflow's scoring server, the supervisor, the gateway."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import redis
from django.utils import timezone

from portal.endpoints import runtime, services
from portal.endpoints.deployment.reconcile import reconcile
from portal.endpoints.models import Endpoint, Replica
from portal.endpoints.reading import current_deployment, line_prefix, triton_view
from portal.previews.services import set_enabled
from portal.registry.models import ModelVersion
from portal.registry.states import ExpressState
from serving import bus
from serving.spec import Backend
from tests.support.deployments import (
    EXAMPLE,
    SUM,
    active_entity,
    advance,
    answers,
    create,
    drive,
    eventually,
    route_of,
    serving_replica,
    triton_of,
    wanted,
)
from tests.support.factories import stored_version

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey", "replicas"),
    pytest.mark.triton,
]

ONE_ROW = SUM.replace(".sum(axis=1)", ".sum(axis=1)[:1]")
# It loads in the scoring server only: Triton's stub is the one whose parent is tritonserver.
NOT_IN_TRITON = SUM.replace(
    "class Model",
    """import sys
if "c_python_backend_utils" in sys.modules:  # only a real stub has it
    raise RuntimeError("this model refuses Triton")

class Model""",
)
NOWHERE = SUM.replace(
    "    def predict",
    """    def load_context(self, context):
        raise RuntimeError("this cannot be loaded")

    def predict""",
)
RAISES = SUM.replace("return np", 'raise ValueError("not this example")\n        return np')


@pytest.mark.usefixtures("preview")
def test_an_optimized_endpoint_becomes_ready_on_triton_with_every_evidence(
    valkey: redis.Redis,
) -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))

    deployment = drive(endpoint)

    assert deployment.state == "SUCCEEDED", deployment.message
    assert (endpoint.ready, endpoint.config_update) == ("READY", "NOT_UPDATING")
    assert endpoint.pending_config is None
    entity = active_entity(endpoint)
    assert entity.state == "DEPLOYMENT_READY"
    view = triton_view(entity)
    assert view.status == "ACTIVE"
    assert len(view.evidence) == 5
    logged = {line.number: line.text for line in runtime.read_logs(serving_replica(endpoint))}
    for item in view.evidence:
        assert item.line is not None
        assert logged[item.line] == item.text
    assert line_prefix(serving_replica(endpoint)).startswith("[ts/")
    steps = {step.name: step.state for step in deployment.steps.all()}
    assert set(steps.values()) <= {"DONE", "SKIPPED"}
    route = route_of(valkey, endpoint)
    assert route.entities[0].backend == Backend.TRITON
    assert route.entities[0].max_in_flight >= 256
    assert route.entities[0].replicas[0].address == serving_replica(endpoint).address
    assert answers(endpoint)


def test_an_endpoint_without_the_switch_runs_on_the_standard_backend(valkey: redis.Redis) -> None:
    endpoint = create(stored_version(SUM, EXAMPLE), throughput_optimized=False, workload_type="CPU")

    assert drive(endpoint).state == "SUCCEEDED"

    assert triton_of(endpoint) == ("OFF", "NOT_REQUESTED")
    assert answers(endpoint)
    assert route_of(valkey, endpoint).entities[0].max_in_flight == 4
    assert line_prefix(serving_replica(endpoint)).startswith("[std/")


@pytest.mark.usefixtures("preview")
def test_what_triton_cannot_load_falls_back_and_is_ready() -> None:
    endpoint = create(stored_version(NOT_IN_TRITON, EXAMPLE))

    deployment = drive(endpoint)

    assert deployment.state == "SUCCEEDED", deployment.message
    assert endpoint.ready == "READY"
    assert triton_of(endpoint) == ("FELL_BACK", "TRITON_LOAD_FAILED")
    assert "refuses Triton" in deployment.decisions.get().message
    assert answers(endpoint)
    eventually(lambda: len(runtime.runtime().running()) == 1)


@pytest.mark.usefixtures("preview")
def test_a_model_that_is_not_batchable_falls_back_with_the_measured_fact() -> None:
    endpoint = create(stored_version(ONE_ROW, EXAMPLE))

    assert drive(endpoint).state == "SUCCEEDED"

    assert triton_of(endpoint) == ("FELL_BACK", "NOT_BATCHABLE")


@pytest.mark.usefixtures("preview")
def test_a_model_that_raises_on_its_own_example_is_only_warned_about() -> None:
    endpoint = create(stored_version(RAISES, EXAMPLE))

    assert drive(endpoint).state == "SUCCEEDED"

    assert triton_of(endpoint)[0] == "ACTIVE"
    assert endpoint.events.filter(kind="smoke_test_warning").exists()


@pytest.mark.usefixtures("preview")
def test_a_failed_first_deployment_says_what_failed_with_the_last_log_lines() -> None:
    endpoint = create(stored_version(NOWHERE, EXAMPLE))

    deployment = drive(endpoint)

    assert (deployment.state, deployment.failed_step) == ("FAILED", "LOAD")
    assert "this cannot be loaded" in deployment.log_excerpt
    assert (endpoint.ready, endpoint.config_update) == ("NOT_READY", "UPDATE_FAILED")
    assert endpoint.active_config is None
    assert endpoint.pending_config is not None
    entity = endpoint.pending_config.entities.get()
    assert entity.state == "DEPLOYMENT_FAILED"
    assert "main" in entity.state_message
    assert triton_view(entity).status == "FAILED"
    eventually(lambda: runtime.runtime().running() == [])


@pytest.mark.usefixtures("preview")
def test_a_failed_update_leaves_the_active_config_serving() -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))
    drive(endpoint)
    before = serving_replica(endpoint).public_id
    broken = stored_version(NOWHERE, EXAMPLE)

    services.update_config(endpoint.creator, endpoint, [wanted(broken)])
    deployment = drive(endpoint)

    assert deployment.state == "FAILED"
    assert (endpoint.ready, endpoint.config_update) == ("READY", "UPDATE_FAILED")
    eventually(lambda: runtime.runtime().running() == [before])
    assert serving_replica(endpoint).public_id == before
    assert answers(endpoint)
    assert triton_of(endpoint)[0] == "ACTIVE"


@pytest.mark.usefixtures("preview")
def test_a_deployment_waits_for_staging_and_then_uses_triton() -> None:
    version = stored_version(SUM, EXAMPLE)
    ModelVersion.objects.filter(pk=version.pk).update(
        express_state=ExpressState.STAGING, staging_beat_at=timezone.now()
    )
    endpoint = create(version)

    for _ in range(3):
        advance(endpoint)
        time.sleep(0.5)
    deployment = current_deployment(endpoint)
    assert deployment is not None
    assert deployment.state == "RUNNING"
    assert not deployment.decisions.exists()
    ModelVersion.objects.filter(pk=version.pk).update(express_state=ExpressState.STAGED)

    assert drive(endpoint).state == "SUCCEEDED"
    assert triton_of(endpoint)[0] == "ACTIVE"


def test_a_preview_turned_off_meanwhile_drops_triton_and_on_again_asks_for_a_redeploy() -> None:
    set_enabled("throughput_optimized", True, None)
    endpoint = create(stored_version(SUM, EXAMPLE))
    set_enabled("throughput_optimized", False, None)

    drive(endpoint)
    assert triton_of(endpoint) == ("FELL_BACK", "PREVIEW_OFF")

    set_enabled("throughput_optimized", True, None)
    assert triton_of(endpoint) == ("PENDING_REDEPLOY", "PREVIEW_OFF")
    services.retry_deployment(endpoint.creator, endpoint)
    drive(endpoint)
    assert triton_of(endpoint)[0] == "ACTIVE"


@pytest.mark.usefixtures("preview")
def test_turning_the_switch_off_and_on_replaces_the_replicas() -> None:
    version = stored_version(SUM, EXAMPLE)
    endpoint = create(version)
    drive(endpoint)
    on = serving_replica(endpoint)

    services.update_config(
        endpoint.creator, endpoint, [wanted(version, throughput_optimized=False)]
    )
    drive(endpoint)

    off = serving_replica(endpoint)
    assert (on.backend, off.backend) == ("TRITON", "STANDARD")
    assert triton_of(endpoint) == ("OFF", "NOT_REQUESTED")
    eventually(lambda: Replica.objects.get(pk=on.pk).state == "STOPPED")
    assert runtime.runtime().running() == [off.public_id]


@pytest.mark.usefixtures("preview")
def test_a_deleted_endpoint_takes_its_processes_folders_and_route_with_it(
    valkey: redis.Redis,
) -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))
    drive(endpoint)
    replica = serving_replica(endpoint)
    environment = active_entity(endpoint).model_version.environment  # type: ignore[union-attr]  # it is there
    status = runtime.status(replica)
    assert status is not None
    server = Path(f"/proc/{status.server_pid}")
    assert server.exists()

    services.delete_endpoint(endpoint.creator, endpoint)

    assert valkey.hget(bus.ROUTES, "sum") is None
    eventually(lambda: not Endpoint.objects.filter(pk=endpoint.pk).exists())
    assert runtime.runtime().running() == []
    assert not server.exists()
    assert not replica.directory.exists()
    assert environment is not None
    assert environment.directory.exists()


@pytest.mark.usefixtures("preview")
def test_a_stopped_endpoint_starts_again_without_launching_its_old_config() -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))
    drive(endpoint)
    services.stop_endpoint(endpoint.creator, endpoint)
    eventually(lambda: runtime.runtime().running() == [])
    assert triton_of(endpoint)[0] == "STOPPED"

    services.start_endpoint(endpoint.creator, endpoint)
    reconcile()
    assert runtime.runtime().running() == []
    assert drive(endpoint).state == "SUCCEEDED"

    assert (endpoint.ready, endpoint.is_stopped) == ("READY", False)
    assert active_entity(endpoint).config.version == 2
    assert triton_of(endpoint)[0] == "ACTIVE"


@pytest.mark.usefixtures("preview")
def test_an_example_of_more_rows_than_a_batch_is_sent_in_parts() -> None:
    version = stored_version(SUM, np.ones((9, 4), dtype=np.float32))
    endpoint = create(version, batching={"max_batch_size": 4})

    deployment = drive(endpoint)

    assert "9 in, 9 out" in deployment.steps.get(name="SMOKE_TEST").message
    assert deployment.decisions.get().batching["sources"]["max_batch_size"] == "override"


@pytest.mark.usefixtures("preview")
def test_a_version_packed_on_a_cpu_runtime_is_flagged_on_a_gpu_workload() -> None:
    endpoint = create(stored_version(SUM, EXAMPLE, databricks_runtime="client.5"))

    deployment = drive(endpoint)

    assert "packed on client.5" in deployment.decisions.get().message
    decided = endpoint.events.get(kind="backend_decided")
    assert "without a GPU" in decided.message


@pytest.mark.usefixtures("preview")
def test_a_cancelled_update_stops_its_replicas_only() -> None:
    version = stored_version(SUM, EXAMPLE)
    endpoint = create(version)
    drive(endpoint)
    before = serving_replica(endpoint).public_id
    services.update_config(endpoint.creator, endpoint, [wanted(version)])
    for _ in range(2):
        advance(endpoint)
        time.sleep(0.4)
    assert len(runtime.runtime().running()) == 2

    services.cancel_update(endpoint.creator, endpoint)

    assert advance(endpoint) is None
    eventually(lambda: runtime.runtime().running() == [before])
    assert answers(endpoint)
