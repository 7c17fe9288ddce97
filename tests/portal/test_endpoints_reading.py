"""What pages and API say: "Triton active" only from every live replica's evidence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.endpoints.models import BackendDecision, Endpoint, Replica, ServedEntity
from portal.endpoints.reading import endpoint_chips, line_prefix, triton_view
from portal.endpoints.routes import build_route
from portal.previews.services import set_enabled
from tests.support.factories import (
    BackendDecisionFactory,
    DeploymentFactory,
    EndpointConfigFactory,
    ReplicaFactory,
    ServedEntityFactory,
    live_endpoint,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


def entity_of(endpoint: Endpoint) -> ServedEntity:
    assert endpoint.active_config is not None
    return endpoint.active_config.entities.get()


def status_of(endpoint: Endpoint) -> tuple[str, str]:
    view = triton_view(entity_of(endpoint))
    assert view.chip.reason == view.message
    return view.status.value, view.reason_code


def test_active_when_the_live_replica_shows_everything() -> None:
    view = triton_view(entity_of(live_endpoint()))

    assert view.status == "ACTIVE"
    assert view.chip.tone == "good"
    assert [item.line for item in view.evidence] == [1, 2, 3, 4, 5]
    assert "CPU emulation" in view.message


@pytest.mark.parametrize("missing", range(5))
def test_unproven_while_any_piece_of_evidence_is_missing(missing: int) -> None:
    endpoint = live_endpoint()
    replica = Replica.objects.get()
    replica.evidence = [item for n, item in enumerate(replica.evidence) if n != missing]
    replica.save()

    assert status_of(endpoint) == ("UNPROVEN", "EVIDENCE_MISSING")


def test_every_live_replica_counts() -> None:
    endpoint = live_endpoint()
    second = ReplicaFactory(
        entity=entity_of(endpoint), deployment=endpoint.deployments.get(), ready=True
    )
    assert status_of(endpoint)[0] == "UNPROVEN"

    Replica.objects.filter(pk=second.pk).update(state="STARTING")
    assert status_of(endpoint)[0] == "STARTING"

    Replica.objects.filter(pk=second.pk).update(is_wanted=False, state="DRAINING")
    assert status_of(endpoint)[0] == "ACTIVE"


def test_a_switch_alone_proves_nothing() -> None:
    endpoint = live_endpoint()
    Replica.objects.all().delete()

    assert status_of(endpoint)[0] == "STARTING"
    BackendDecision.objects.all().delete()
    assert status_of(endpoint)[0] == "UNPROVEN"


def test_a_row_that_nobody_refreshed_is_not_believed() -> None:
    endpoint = live_endpoint()
    silent = timezone.now() - timedelta(minutes=10)
    Replica.objects.update(seen_at=silent)

    chip, _ = endpoint_chips(endpoint)

    # The replica's supervisor does not live, and it left no status.
    assert status_of(endpoint)[0] == "STARTING"
    assert chip.label == "Not ready"


def decide(endpoint: Endpoint, **fields: Any) -> None:
    BackendDecision.objects.update(backend="STANDARD", **fields)


def test_off_fallen_back_pending_and_stopped_have_their_own_words() -> None:
    off = live_endpoint(throughput_optimized=False)
    assert status_of(off) == ("OFF", "NOT_REQUESTED")

    endpoint = live_endpoint()
    decide(endpoint, reason_code="PREVIEW_OFF", message="The preview is off.")
    assert status_of(endpoint) == ("FELL_BACK", "PREVIEW_OFF")

    set_enabled("throughput_optimized", True, None)
    assert status_of(endpoint) == ("PENDING_REDEPLOY", "PREVIEW_OFF")

    decide(endpoint, reason_code="TRITON_LOAD_FAILED", message="No module named x.")
    assert status_of(endpoint) == ("FELL_BACK", "TRITON_LOAD_FAILED")

    endpoint.is_stopped = True
    endpoint.save()
    assert status_of(endpoint) == ("STOPPED", "STOPPED")
    assert endpoint_chips(endpoint)[0].label == "Stopped"


def test_a_pending_config_tells_of_its_own_deployment() -> None:
    endpoint = live_endpoint()
    endpoint.pending_config = EndpointConfigFactory(endpoint=endpoint, version=2)
    endpoint.config_update = "IN_PROGRESS"
    endpoint.save()
    pending = ServedEntityFactory(config=endpoint.pending_config, optimized=True)
    assert triton_view(pending).status == "STARTING"

    deployment = DeploymentFactory(config=endpoint.pending_config, running=True)
    BackendDecisionFactory(deployment=deployment, entity=pending)
    assert triton_view(pending).message == "Triton is starting."

    deployment.decisions.update(backend="STANDARD", reason_code="STAGING_FAILED")
    assert triton_view(ServedEntity.objects.get(pk=pending.pk)).status == "FELL_BACK"

    ServedEntity.objects.filter(pk=pending.pk).update(state="DEPLOYMENT_FAILED")
    assert triton_view(ServedEntity.objects.get(pk=pending.pk)).status == "FAILED"


def test_a_switch_that_is_being_turned_on_is_pending() -> None:
    endpoint = live_endpoint(throughput_optimized=False)
    endpoint.pending_config = EndpointConfigFactory(endpoint=endpoint, version=2)
    endpoint.config_update = "IN_PROGRESS"
    endpoint.save()
    ServedEntityFactory(config=endpoint.pending_config, optimized=True)

    assert status_of(endpoint) == ("PENDING_REDEPLOY", "UPDATING")


@pytest.mark.parametrize(
    ("update", "label"),
    [
        ("NOT_UPDATING", None),
        ("IN_PROGRESS", "Updating"),
        ("UPDATE_FAILED", "Update failed"),
        ("UPDATE_CANCELED", "Update canceled"),
    ],
)
def test_ready_and_update_are_two_chips(update: str, label: str | None) -> None:
    endpoint = live_endpoint()
    endpoint.config_update = update

    ready, chip = endpoint_chips(endpoint)

    assert ready.label == "Ready"
    assert (chip.label if chip else None) == label


def test_log_lines_carry_the_replica_and_its_server() -> None:
    assert line_prefix(ReplicaFactory(public_id="g7zw9")) == "[ts/g7zw9]"
    assert line_prefix(ReplicaFactory(public_id="a1b2c", backend="STANDARD")) == "[std/a1b2c]"


def test_a_route_keeps_a_replica_whose_server_starts_again_and_no_other() -> None:
    endpoint = live_endpoint()

    def routed() -> int:
        return len(build_route(Endpoint.objects.get(pk=endpoint.pk)).entities[0].replicas)

    assert routed() == 1
    Replica.objects.update(state="STARTING")
    assert routed() == 1
    Replica.objects.update(ready_at=None)
    assert routed() == 0
    Replica.objects.update(state="READY", is_wanted=False)
    assert routed() == 0


def test_a_route_carries_levels_of_creator_users_and_groups() -> None:
    endpoint = live_endpoint()

    route = build_route(endpoint)

    assert route.user_levels == {str(endpoint.creator_id): "CAN_MANAGE"}
    assert route.group_levels == {}
    assert route.entities[0].max_in_flight == 256
