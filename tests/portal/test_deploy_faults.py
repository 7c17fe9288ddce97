"""Deployments whose tasks, replicas or machine end in the midst of things, with real processes."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

import pytest
import redis
from django.utils import timezone

from portal.endpoints import runtime, services
from portal.endpoints.deployment import machine
from portal.endpoints.deployment.reconcile import reconcile
from portal.endpoints.inputs import EndpointInput
from portal.endpoints.models import Deployment, Endpoint, Replica
from serving import bus
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


@pytest.mark.usefixtures("preview")
@pytest.mark.parametrize("step", ["DECIDE", "LOAD", "DRAIN"])
def test_a_task_that_died_is_sent_again_and_goes_on_from_the_rows(
    step: str, valkey: redis.Redis
) -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))
    deployment = endpoint.deployments.get()
    while current_step(deployment) != step:
        advance(endpoint)
        time.sleep(0.31)
    die_silently(deployment)
    valkey.delete("celery", "default")

    reconcile()

    assert valkey.llen("default") == 1  # the task is sent again
    assert drive(endpoint).state == "SUCCEEDED"
    assert len(runtime.runtime().running()) == 1
    assert triton_of(endpoint)[0] == "ACTIVE"


def current_step(deployment: Deployment) -> str:
    step = deployment.steps.exclude(state__in=["DONE", "SKIPPED"]).first()
    assert step is not None
    return step.name


def die_silently(deployment: Deployment) -> None:
    """Leave the deployment as kill -9 of its task does: owned, without a beat."""
    silent = timezone.now() - timedelta(minutes=5)
    Deployment.objects.filter(pk=deployment.pk).update(owner="dead", beat_at=silent)


@pytest.mark.usefixtures("preview")
def test_a_task_that_died_between_row_and_process_launches_the_same_replica() -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))
    deployment = endpoint.deployments.get()
    while current_step(deployment) != "LOAD":
        advance(endpoint)
        time.sleep(0.31)
    replica = deployment.replicas.get()
    runtime.runtime().remove(replica.public_id)
    deployment.replicas.update(state="LAUNCHING", launched_at=None)
    die_silently(deployment)

    assert drive(endpoint).state == "SUCCEEDED"

    assert serving_replica(endpoint).public_id == replica.public_id
    assert Replica.objects.count() == 1


@pytest.mark.usefixtures("preview")
def test_a_deployment_has_one_owner_and_doubled_tasks_die_out() -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))
    deployment = endpoint.deployments.get()

    assert machine.advance(deployment.pk, owner="one") is not None
    assert machine.advance(deployment.pk, owner="two") is None

    assert drive(endpoint).state == "SUCCEEDED"
    assert Replica.objects.count() == 1


@pytest.mark.usefixtures("preview")
def test_a_killed_replica_is_replaced() -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))
    drive(endpoint)
    lost = serving_replica(endpoint)
    Replica.objects.update(launched_at=timezone.now() - timedelta(minutes=1))

    runtime.runtime().kill(lost.public_id)

    eventually(lambda: serving_replica_id(endpoint) not in {None, lost.public_id})
    eventually(lambda: active_entity(endpoint).state == "DEPLOYMENT_READY" and answers(endpoint))
    assert triton_of(endpoint)[0] == "ACTIVE"
    kinds = set(endpoint.events.values_list("kind", flat=True))
    assert {"replica_stopped", "entity_recovering", "endpoint_not_ready"} <= kinds


def serving_replica_id(endpoint: Endpoint) -> str | None:
    found = Replica.objects.filter(entity=active_entity(endpoint), is_wanted=True).first()
    return found.public_id if found else None


@pytest.mark.usefixtures("preview")
def test_a_killed_triton_is_started_again_by_its_supervisor() -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))
    drive(endpoint)
    replica = serving_replica(endpoint)
    status = runtime.status(replica)
    assert status is not None
    assert status.server_pid is not None

    os.kill(status.server_pid, signal.SIGKILL)

    eventually(lambda: (found := runtime.status(replica)) is not None and found.restarts == 1)
    eventually(lambda: triton_of(endpoint)[0] == "ACTIVE" and answers(endpoint))
    assert serving_replica(endpoint).public_id == replica.public_id
    assert serving_replica(endpoint).restarts == 1


@pytest.mark.usefixtures("preview")
def test_after_a_restart_of_everything_all_endpoints_come_back(valkey: redis.Redis) -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))
    drive(endpoint)
    stopped = create_another("stopped", endpoint)
    drive(stopped)
    services.stop_endpoint(stopped.creator, stopped)
    for replica_id in runtime.runtime().running():
        runtime.runtime().kill(replica_id)
    Replica.objects.update(launched_at=timezone.now() - timedelta(hours=1))
    valkey.flushall()

    eventually(lambda: active_entity(endpoint).state == "DEPLOYMENT_READY" and answers(endpoint))

    endpoint.refresh_from_db()
    assert endpoint.ready == "READY"
    assert valkey.get(bus.PUBLISHED)
    assert route_of(valkey, endpoint).entities[0].replicas
    assert route_of(valkey, stopped).is_stopped
    assert len(runtime.runtime().running()) == 1


def create_another(name: str, endpoint: Endpoint) -> Endpoint:
    version = active_entity(endpoint).model_version
    assert version is not None
    entity = wanted(version, throughput_optimized=False)
    return services.create_endpoint(endpoint.creator, EndpointInput(name=name, entities=(entity,)))
