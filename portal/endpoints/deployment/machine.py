"""The step machine: takes a deployment as far as it can go now, and says when to look again.

A deployment has one owner at a time (`owner`, claimed by compare-and-set together with `beat_at`).
An owner that dies loses the claim when its beat is stale; the reconciler then sends the task
again, and the next owner goes on from the rows. Each step may run twice without harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from portal.endpoints.deployment import decide, finish, profiling, start
from portal.endpoints.deployment.outcomes import (
    Done,
    FellBack,
    Outcome,
    Skipped,
    StepFailed,
    Waiting,
)
from portal.endpoints.deployment.ownership import still_ours
from portal.endpoints.models import Deployment, Endpoint, ServedEntity
from portal.endpoints.routes import publish
from portal.endpoints.services.moves import (
    move_config_update,
    move_deployment,
    move_entity,
    move_step,
)
from portal.endpoints.states import (
    UNDER_WAY,
    ConfigUpdate,
    DeploymentState,
    EntityState,
    StepName,
    StepState,
)
from portal.queue import enqueue
from serving.errors import ServingError

log = logging.getLogger(__name__)

STALE_AFTER = timedelta(seconds=10)
LONG_STALE_AFTER = timedelta(seconds=finish.SMOKE_TIMEOUT_S + finish.PROBE_LIMIT_S + 10)
LONG_STEPS = (StepName.PROFILE, StepName.SMOKE_TEST)
"""They wait for the model itself: for one call more than their limits, between two beats."""
NOT_DUE = timedelta(seconds=0.3)
"""Doubled messages die out: whoever comes so soon after the last look is not needed."""
RETRY_FAULT_S = 5.0
DEADLINE = timedelta(hours=2)
FALL_BACK_REPEATS = (StepName.LAUNCH, StepName.LOAD, StepName.SMOKE_TEST)

HANDLERS: dict[StepName, Callable[[Deployment], Outcome]] = {
    StepName.DECIDE: decide.decide,
    StepName.PREPARE: start.prepare,
    StepName.PROFILE: profiling.profile,
    StepName.LAUNCH: start.launch_replicas,
    StepName.LOAD: start.load,
    StepName.SMOKE_TEST: finish.smoke,
    StepName.SWITCH: finish.switch,
    StepName.DRAIN: finish.drain,
}


def advance(deployment_id: int, *, owner: str) -> float | None:
    """Take the deployment as far as it goes now.

    Args:
        deployment_id: Its row; nothing happens when it is gone or has ended.
        owner: A word of the caller's own, the task's id.

    Returns:
        Seconds until it should be looked at again; None when it has ended or another owner works.
    """
    deployment = _claim(deployment_id, owner)
    if deployment is None:
        return None
    try:
        return _run(deployment)
    except StepFailed as failure:
        _fail(deployment, failure)
        return None
    except ServingError as exc:
        _fail(deployment, StepFailed(exc.code, exc.message))
        return None
    except Exception:  # the outermost loop: a fault of ours must not end the deployment
        log.exception("deployment %s: a step failed unexpectedly; it is tried again", deployment.pk)
        return RETRY_FAULT_S
    finally:
        Deployment.objects.filter(pk=deployment.pk, owner=owner).update(
            owner="", beat_at=timezone.now()
        )


def is_stale(deployment: Deployment) -> bool:
    """Whether nobody has looked at a deployment under way for too long."""
    limit = STALE_AFTER
    if deployment.owner and deployment.steps.filter(name__in=LONG_STEPS, state=StepState.RUNNING):
        limit = LONG_STALE_AFTER
    last = deployment.beat_at or deployment.created_at
    return timezone.now() - last > limit


def _claim(deployment_id: int, owner: str) -> Deployment | None:
    deployment = (
        Deployment.objects.select_related("endpoint", "config")
        .filter(pk=deployment_id, state__in=UNDER_WAY)
        .first()
    )
    if deployment is None:
        return None
    at = timezone.now()
    free = Q(owner="") & (Q(beat_at=None) | Q(beat_at__lt=at - NOT_DUE))
    if deployment.owner and is_stale(deployment):
        free |= Q(owner=deployment.owner, beat_at=deployment.beat_at)
    claimed = Deployment.objects.filter(free, pk=deployment_id, state__in=UNDER_WAY).update(
        owner=owner, beat_at=at
    )
    if not claimed:
        return None
    deployment.owner, deployment.beat_at = owner, at
    if deployment.state == DeploymentState.QUEUED:
        move_deployment(deployment, DeploymentState.RUNNING)
    return deployment


def _run(deployment: Deployment) -> float | None:
    while still_ours(deployment):
        step = deployment.steps.exclude(state__in=[StepState.DONE, StepState.SKIPPED]).first()
        if step is None:
            _succeed(deployment)
            return None
        if timezone.now() - deployment.created_at > DEADLINE:
            raise StepFailed("DEADLINE_EXCEEDED", "The deployment took longer than two hours.")
        if step.state != StepState.RUNNING:
            move_step(step, StepState.RUNNING)
        outcome = HANDLERS[StepName(step.name)](deployment)
        match outcome:
            case Done(message=message):
                move_step(step, StepState.DONE, message=message)
            case Skipped(message=message):
                move_step(step, StepState.SKIPPED, message=message)
            case FellBack(message=message):
                _launch_again(deployment, message)
            case Waiting(message=message, again_s=again_s):
                if message != step.message:
                    move_step(step, StepState.RUNNING, message=message)
                return again_s
    return None


def _launch_again(deployment: Deployment, message: str) -> None:
    for step in deployment.steps.filter(name__in=FALL_BACK_REPEATS):
        move_step(step, StepState.WAITING, message=message)


@transaction.atomic
def _succeed(deployment: Deployment) -> None:
    if move_deployment(deployment, DeploymentState.SUCCEEDED):
        endpoint = Endpoint.objects.select_for_update().get(pk=deployment.endpoint_id)
        move_config_update(endpoint, ConfigUpdate.NOT_UPDATING)


@transaction.atomic
def _fail(deployment: Deployment, failure: StepFailed) -> None:
    """End the deployment with its cause; the active config goes on serving."""
    if not move_deployment(deployment, DeploymentState.FAILED, reason=failure.message):
        return
    step = deployment.steps.filter(state=StepState.RUNNING).first()
    if step is not None:
        move_step(step, StepState.FAILED, message=failure.message)
    Deployment.objects.filter(pk=deployment.pk).update(
        failed_step=step.name if step else "",
        error_code=failure.code,
        log_excerpt=failure.log_excerpt,
    )
    for entity in deployment.config.entities.filter(state=EntityState.DEPLOYMENT_CREATING):
        _fail_entity(entity, failure)
    deployment.replicas.update(is_wanted=False)
    endpoint = Endpoint.objects.select_for_update().get(pk=deployment.endpoint_id)
    move_config_update(endpoint, ConfigUpdate.UPDATE_FAILED, message=failure.message)
    publish(endpoint)
    enqueue("endpoints.reconcile")


def _fail_entity(entity: ServedEntity, failure: StepFailed) -> None:
    if failure.entity is None or failure.entity.pk == entity.pk:
        move_entity(entity, EntityState.DEPLOYMENT_FAILED, reason=failure.message)
    else:
        reason = f"Aborted, because {failure.entity.name} failed: {failure.message}"
        move_entity(entity, EntityState.DEPLOYMENT_ABORTED, reason=reason)
