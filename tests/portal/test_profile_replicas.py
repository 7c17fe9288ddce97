"""A replica that is measured serves nobody and counts for nothing."""

from __future__ import annotations

import pytest

from portal.endpoints.deployment.reconcile import drop_superfluous_wishes
from portal.endpoints.models import Endpoint, Replica
from portal.endpoints.reading import live_replicas, triton_view
from portal.endpoints.routes import build_route
from portal.endpoints.states import ReplicaPurpose
from tests.support.factories import ReplicaFactory, live_endpoint

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture
def endpoint() -> Endpoint:
    """It serves from one proven replica; a measured one without any evidence stands beside it."""
    endpoint = live_endpoint()
    serving = Replica.objects.get()
    ReplicaFactory(
        public_id="mmmmm",
        entity=serving.entity,
        deployment=serving.deployment,
        ready=True,
        purpose=ReplicaPurpose.PROFILE,
    )
    return endpoint


def test_no_request_goes_to_it_and_no_page_counts_it(endpoint: Endpoint) -> None:
    assert endpoint.active_config is not None
    entity = endpoint.active_config.entities.get()

    route = build_route(endpoint)

    serving = Replica.objects.get(purpose=ReplicaPurpose.SERVE).public_id
    assert [replica.replica_id for replica in route.entities[0].replicas] == [serving]
    assert [replica.public_id for replica in live_replicas(entity)] == [serving]
    assert triton_view(entity).status == "ACTIVE"


def test_it_is_not_wanted_any_more_once_its_deployment_has_ended(endpoint: Endpoint) -> None:
    drop_superfluous_wishes()

    wanted = Replica.objects.filter(is_wanted=True)
    assert [replica.purpose for replica in wanted] == [ReplicaPurpose.SERVE]
