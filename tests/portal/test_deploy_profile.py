"""A deployment measures a model once, chooses its batching from that, and remembers it."""

from __future__ import annotations

import pytest
import redis
from django.conf import LazySettings

from portal.endpoints import runtime, services
from portal.endpoints.models import Deployment, Profile, Replica
from portal.endpoints.services import profile_of
from portal.endpoints.states import ReplicaPurpose, ReplicaState
from tests.support.deployments import (
    EXAMPLE,
    SUM,
    active_entity,
    advance,
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
    pytest.mark.usefixtures("valkey", "replicas", "preview", "budget"),
    pytest.mark.triton,
]

CENTRED = SUM.replace("model_input, dtype=np.float32)", "model_input - model_input.mean(axis=0))")
NOT_IN_TRITON = SUM.replace(
    "class Model",
    """import sys
if "c_python_backend_utils" in sys.modules:  # only a real stub has it
    raise RuntimeError("this model refuses Triton")

class Model""",
)


@pytest.fixture
def budget(settings: LazySettings) -> None:
    settings.PROFILE_BUDGET_S = 2


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
    assert profile.steps[0].rows == 1
    assert all(step.rows_per_s > 0 for step in profile.steps)
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


def test_a_model_whose_rows_depend_on_each_other_goes_to_the_standard_backend() -> None:
    endpoint = create(stored_version(CENTRED, EXAMPLE))

    deployment = drive(endpoint)

    assert deployment.state == "SUCCEEDED", deployment.message
    decision = deployment.decisions.get()
    assert (decision.backend, decision.reason_code) == ("STANDARD", "NOT_BATCHABLE")
    assert "depends on the rows beside it" in decision.message
    profile = profile_of(decision)
    assert profile is not None
    assert profile.probe is not None
    assert profile.probe.is_row_independent is False
    assert deployment.replicas.get(purpose=ReplicaPurpose.SERVE).backend == "STANDARD"
    assert endpoint.events.filter(kind="backend_fell_back").exists()


def test_a_model_that_cannot_be_loaded_to_be_measured_is_left_to_the_launch() -> None:
    endpoint = create(stored_version(NOT_IN_TRITON, EXAMPLE))
    deployment = endpoint.deployments.get()

    eventually(lambda: step(deployment)[0] == "DONE", each=lambda: advance(endpoint), limit_s=120)

    assert "default batching" in step(deployment)[1]
    assert "this model refuses Triton" in step(deployment)[1]
    decision = deployment.decisions.get()
    assert decision.backend == "TRITON"
    assert "this model refuses Triton" in decision.batching_reasons["max_batch_size"]
    assert not Profile.objects.exists()


def test_a_canceled_deployment_leaves_nothing_that_is_measured() -> None:
    endpoint = create(stored_version(SUM, EXAMPLE))
    eventually(lambda: Replica.objects.exists(), each=lambda: advance(endpoint))
    measured = Replica.objects.get()
    assert measured.purpose == ReplicaPurpose.PROFILE

    services.cancel_update(endpoint.creator, endpoint)
    eventually(lambda: not runtime.runtime().running())

    measured.refresh_from_db()
    assert (measured.is_wanted, measured.state) == (False, ReplicaState.STOPPED)
    assert not Profile.objects.exists()
