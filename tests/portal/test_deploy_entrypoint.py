"""Deployments of models that bring their own server, with real processes."""

from __future__ import annotations

import pytest
import redis
from django.utils import timezone

from portal.endpoints.reading import line_prefix
from portal.registry.models import ModelVersion
from portal.registry.states import ExpressState
from serving.spec import Backend
from tests.support.deployments import (
    EXAMPLE,
    active_entity,
    advance,
    create,
    drive,
    route_of,
    serving_replica,
    triton_of,
)
from tests.support.entrypoint import PLACEHOLDER, SERVER
from tests.support.factories import stored_version
from tests.support.replicas import post

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey", "replicas"),
]


def own_version() -> ModelVersion:
    version = stored_version(
        PLACEHOLDER, EXAMPLE, entrypoint="python -u server.py --host 0.0.0.0 --port 8080"
    )
    artifacts = version.model_directory / "artifacts"
    artifacts.mkdir(exist_ok=True)
    (artifacts / "server.py").write_text(SERVER)
    return version


def test_a_model_that_brings_its_own_server_runs_on_it(valkey: redis.Redis) -> None:
    endpoint = create(own_version(), throughput_optimized=False, workload_type="CPU")

    deployment = drive(endpoint)

    assert deployment.state == "SUCCEEDED", deployment.message
    assert triton_of(endpoint) == ("OFF", "CUSTOM_ENTRYPOINT")
    replica = serving_replica(endpoint)
    assert replica.backend == Backend.ENTRYPOINT
    assert line_prefix(replica).startswith("[own/")
    assert post(replica.address, "/invocations", {"any": "thing"}) == (200, '{"any": "thing"}')
    (entity,) = route_of(valkey, endpoint).entities
    assert (entity.backend, entity.max_in_flight) == (Backend.ENTRYPOINT, 4)
    said = endpoint.events.filter(kind="backend_decided").get().message
    assert "runs on the server that the model brings" in said


def test_it_waits_for_its_packed_environment() -> None:
    version = own_version()
    ModelVersion.objects.filter(pk=version.pk).update(
        express_state=ExpressState.STAGING, staging_beat_at=timezone.now()
    )
    endpoint = create(version, throughput_optimized=False, workload_type="CPU")

    advance(endpoint)

    assert not endpoint.deployments.get().decisions.exists()
    ModelVersion.objects.filter(pk=version.pk).update(express_state=ExpressState.STAGED)
    assert drive(endpoint).state == "SUCCEEDED"
    assert active_entity(endpoint).state == "DEPLOYMENT_READY"


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        (
            {"is_packed": False, "express_state": ExpressState.NOT_STAGED},
            "NOT_EXPRESS",
            "only supported with an express deployment",
        ),
        (
            {"express_state": ExpressState.FAILED, "express_message": "The tar is unsafe."},
            "STAGING_FAILED",
            "The tar is unsafe.",
        ),
    ],
)
def test_without_a_packed_environment_it_is_refused_in_plain_words(
    fields: dict[str, object], code: str, words: str
) -> None:
    version = own_version()
    ModelVersion.objects.filter(pk=version.pk).update(**fields)
    endpoint = create(version, throughput_optimized=False, workload_type="CPU")

    deployment = drive(endpoint)

    assert (deployment.state, deployment.failed_step) == ("FAILED", "DECIDE")
    assert deployment.error_code == code
    assert words in endpoint.config_update_message
