"""State changes: one function a noun, which refuses the impossible and writes the event.

Nobody else assigns a state. Each returns False when another process moved the row first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction
from django.utils import timezone

from portal.endpoints.models import (
    Deployment,
    DeploymentStep,
    Endpoint,
    Event,
    Replica,
    ServedEntity,
)
from portal.endpoints.states import (
    CONFIG_UPDATE_FOLLOWS,
    DEPLOYMENT_FOLLOWS,
    ENTITY_FOLLOWS,
    REPLICA_FOLLOWS,
    ConfigUpdate,
    DeploymentState,
    EntityState,
    Ready,
    ReplicaPurpose,
    ReplicaState,
    StepState,
)

if TYPE_CHECKING:
    from portal.accounts.models import User


ENDINGS = {
    DeploymentState.QUEUED: "is queued",
    DeploymentState.RUNNING: "is running",
    DeploymentState.SUCCEEDED: "succeeded",
    DeploymentState.FAILED: "failed",
    DeploymentState.CANCELED: "was canceled",
}


class IllegalTransition(Exception):
    """A state cannot follow the one that is there: a fault of the caller, never of the data."""


def record(
    endpoint: Endpoint,
    kind: str,
    message: str,
    *,
    actor: User | None = None,
    deployment: Deployment | None = None,
    entity_name: str = "",
    replica_id: str = "",
) -> None:
    """Write a line of the endpoint's time line."""
    Event.objects.create(
        endpoint=endpoint,
        kind=kind,
        message=message,
        actor=actor,
        deployment=deployment,
        entity_name=entity_name,
        replica_id=replica_id,
    )


@transaction.atomic
def move_replica(replica: Replica, to: ReplicaState, *, reason: str) -> bool:
    """Move `replica` to `to`, with its event; nothing happens when it is there already."""
    came_from = ReplicaState(replica.state)
    if came_from == to:
        return False
    if to not in REPLICA_FOLLOWS[came_from]:
        raise IllegalTransition(f"replica {replica} is {came_from}; it cannot become {to}.")
    since = timezone.now()
    won = Replica.objects.filter(pk=replica.pk, state=came_from).update(
        state=to, state_since=since, message=reason
    )
    if won:
        replica.state, replica.state_since, replica.message = to, since, reason
        words = f"{_kind(replica)} {replica} of {replica.entity.name} is {to.label.lower()}."
        record(
            replica.entity.config.endpoint,
            f"replica_{to.lower()}",
            f"{words} {reason}".strip(),
            deployment=replica.deployment,
            entity_name=replica.entity.name,
            replica_id=replica.public_id,
        )
    return bool(won)


def _kind(replica: Replica) -> str:
    return "Measured replica" if replica.purpose == ReplicaPurpose.PROFILE else "Replica"


@transaction.atomic
def move_deployment(
    deployment: Deployment,
    to: DeploymentState,
    *,
    reason: str = "",
    actor: User | None = None,
) -> bool:
    """Move `deployment` to `to`, with its times and its event."""
    came_from = DeploymentState(deployment.state)
    if to not in DEPLOYMENT_FOLLOWS[came_from]:
        raise IllegalTransition(f"{deployment} is {came_from}; it cannot become {to}.")
    at = timezone.now()
    times = {"started_at": at} if to == DeploymentState.RUNNING else {"ended_at": at}
    won = Deployment.objects.filter(pk=deployment.pk, state=came_from).update(
        state=to, message=reason, **times
    )
    if won:
        deployment.state, deployment.message = to, reason
        for name, value in times.items():
            setattr(deployment, name, value)
        words = f"The deployment of config version {deployment.config.version} {ENDINGS[to]}."
        record(
            deployment.endpoint,
            f"deployment_{to.lower()}",
            f"{words} {reason}".strip(),
            actor=actor,
            deployment=deployment,
        )
    return bool(won)


def move_step(step: DeploymentStep, to: StepState, *, message: str | None = None) -> None:
    """Move a step; only the owner of its deployment does, so nothing can be in between."""
    at = timezone.now()
    if to == StepState.WAITING:
        step.started_at = step.ended_at = None
    elif to == StepState.RUNNING:
        step.started_at, step.ended_at = step.started_at or at, None
    else:
        step.started_at, step.ended_at = step.started_at or at, at
    step.state = to
    step.message = step.message if message is None else message
    step.save(update_fields=["state", "message", "started_at", "ended_at"])


@transaction.atomic
def move_entity(entity: ServedEntity, to: EntityState, *, reason: str = "") -> bool:
    """Move a served entity to `to`, with its event; nothing happens when it is there already."""
    came_from = EntityState(entity.state)
    if came_from == to:
        return False
    if to not in ENTITY_FOLLOWS[came_from]:
        raise IllegalTransition(f"served entity {entity} is {came_from}; it cannot become {to}.")
    since = timezone.now()
    won = ServedEntity.objects.filter(pk=entity.pk, state=came_from).update(
        state=to, state_message=reason, state_since=since
    )
    if won:
        entity.state, entity.state_message, entity.state_since = to, reason, since
        record(
            entity.config.endpoint,
            f"entity_{to.removeprefix('DEPLOYMENT_').lower()}",
            f"Served entity {entity} is {to.label.lower()}. {reason}".strip(),
            entity_name=entity.name,
        )
    return bool(won)


@transaction.atomic
def move_ready(endpoint: Endpoint, to: Ready, *, reason: str = "") -> bool:
    """Say whether the endpoint can answer; nothing happens when that is said already."""
    since = timezone.now()
    won = (
        Endpoint.objects.filter(pk=endpoint.pk)
        .exclude(ready=to)
        .update(ready=to, ready_since=since)
    )
    if won:
        endpoint.ready, endpoint.ready_since = to, since
        record(
            endpoint,
            f"endpoint_{to.lower()}",
            f"The endpoint is {to.label.lower()}. {reason}".strip(),
        )
    return bool(won)


@transaction.atomic
def move_config_update(endpoint: Endpoint, to: ConfigUpdate, *, message: str = "") -> bool:
    """Say how the endpoint's update stands; its event is the deployment's."""
    came_from = ConfigUpdate(endpoint.config_update)
    if came_from == to:
        return False
    if to not in CONFIG_UPDATE_FOLLOWS[came_from]:
        raise IllegalTransition(f"the update of {endpoint} is {came_from}; it cannot become {to}.")
    won = Endpoint.objects.filter(pk=endpoint.pk, config_update=came_from).update(
        config_update=to, config_update_message=message, updated_at=timezone.now()
    )
    if won:
        endpoint.config_update, endpoint.config_update_message = to, message
    return bool(won)
