"""A deployment measures a model once, chooses its batching from that, and remembers it."""

from __future__ import annotations

import pytest
import redis
from django.conf import LazySettings

from portal.endpoints import services
from portal.endpoints.models import Deployment, Replica
from portal.endpoints.services import profile_of
from portal.endpoints.states import ReplicaPurpose, ReplicaState
from tests.support.deployments import (
    EXAMPLE,
    SUM,
    active_entity,
    create,
    drive,
    route_of,
    serving_replica,
    triton_of,
    wanted,
)
from tests.support.factories import stored_version

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey", "replicas", "preview", "budget"),
    pytest.mark.triton,
]

CENTRED = SUM.replace(".sum(axis=1)", ".sum(axis=1)").replace(
    "return np.asarray(model_input, dtype=np.float32)",
    "model_input = model_input - model_input.mean(axis=0)\n        return np.asarray(model_input)",
)


@pytest.fixture
def budget(settings: LazySettings) -> None:
    settings.PROFILE_BUDGET_S = 4


def step(deployment: Deployment, name: str = "PROFILE") -> tuple[str, str]:
    found = deployment.steps.get(name=name)
    return found.state, found.message


def test_a_model_is_measured_once_and_its_profile_is_used_again(valkey: redis.Redis) -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))

    first = drive(endpoint)

    assert first.state == "SUCCEEDED", first.message
    decision = first.decisions.get()
    profile = profile_of(decision)
    assert profile is not None
    assert [s.rows for s in profile.steps][:4] == [1, 2, 4, 8]
    assert profile.probe is not None
    assert profile.probe.is_row_independent is True
    assert profile.trials[0].requests_per_s > 0
    assert sum(trial.is_chosen for trial in profile.trials) == 1
    assert decision.batching["max_batch_size"] == profile.chosen.max_batch_size
    assert decision.batching["sources"]["max_batch_size"] == "profile"
    assert decision.batching_reasons["max_batch_size"] == profile.reasons["max_batch_size"]
    assert route_of(valkey, endpoint).entities[0].max_batch_size == profile.chosen.max_batch_size
    assert route_of(valkey, endpoint).entities[0].replicas[0].replica_id == str(
        serving_replica(endpoint)
    )
    measured = Replica.objects.filter(purpose=ReplicaPurpose.PROFILE)
    assert measured.count() == len(profile.trials)
    assert {replica.state for replica in measured} == {ReplicaState.STOPPED}
    assert triton_of(endpoint)[0] == "ACTIVE"

    services.update_config(
        endpoint.creator,
        endpoint,
        [wanted(active_entity(endpoint).model_version, batching={"max_batch_size": 3})],  # type: ignore[arg-type]  # it is there
    )
    second = drive(endpoint)

    assert second.state == "SUCCEEDED", second.message
    assert "reused" in step(second)[1]
    assert Replica.objects.filter(purpose=ReplicaPurpose.PROFILE).count() == measured.count()
    decision = second.decisions.get()
    assert decision.profile == first.decisions.get().profile
    assert decision.batching["max_batch_size"] == 3
    assert decision.batching["sources"]["max_batch_size"] == "override"
    assert decision.batching["sources"]["instance_count"] == "profile"
