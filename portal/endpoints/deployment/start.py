"""PREPARE, LAUNCH, LOAD: from a decided backend to replicas that are ready.

A Triton replica that cannot load its model is no failure: its entity falls back to the standard
backend with the cause, and is launched anew. A standard replica that cannot start is one.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from portal.endpoints import runtime
from portal.endpoints.deployment.decide import fall_back
from portal.endpoints.deployment.outcomes import Done, FellBack, Outcome, StepFailed, Waiting
from portal.endpoints.deployment.replicas import (
    LAUNCH_GRACE,
    add_replica,
    excerpt,
    launch,
    observe,
    retire,
    wanted_count,
    wanted_replicas,
)
from portal.endpoints.models import BackendDecision, Deployment, Replica, ServedEntity
from portal.endpoints.states import ReplicaState
from portal.registry import services as registry
from portal.secrets.services import SecretUnavailable, resolve_all
from serving.eligibility import ReasonCode
from serving.spec import Backend, ReplicaStatus

BUILD_LOG_TAIL = 4000


def decisions_of(deployment: Deployment) -> list[BackendDecision]:
    """The deployment's decisions in the entities' order."""
    return list(
        BackendDecision.objects.filter(deployment=deployment)
        .select_related(
            "entity__model_version__model", "entity__config__endpoint__creator", "deployment"
        )
        .order_by("entity__position")
    )


def prepare(deployment: Deployment) -> Outcome:
    """Have each version's model and environment on this node."""
    waits = []
    for decision in decisions_of(deployment):
        entity = decision.entity
        version = entity.model_version
        if version is None:
            raise StepFailed(
                "MODEL_VERSION_DELETED", "The model version was deleted.", entity=entity
            )
        _require_secrets(entity)
        prepared = registry.ensure_prepared(version)
        if prepared.state == "failed":
            raise StepFailed(
                prepared.reason_code or "PREPARATION_FAILED",
                prepared.message,
                entity=entity,
                log_excerpt=registry.build_log(version)[-BUILD_LOG_TAIL:],
            )
        if prepared.state == "working":
            waits.append(f"{version}: {prepared.message}")
    if waits:
        return Waiting(message=" ".join(waits))
    return Done(message="Model and environment are in place.")


def _require_secrets(entity: ServedEntity) -> None:
    """Let the entity's secrets be there, for the endpoint's creator, before anything is started."""
    try:
        resolve_all(entity.environment_vars, entity.config.endpoint.creator)
    except SecretUnavailable as exc:
        message = f"{entity.name} cannot be started. {exc.message}"
        raise StepFailed("SECRET_UNAVAILABLE", message, entity=entity) from exc


def launch_replicas(deployment: Deployment) -> Outcome:
    """Have every replica that the decisions ask for, and its supervisor started."""
    alive = set(runtime.runtime().running())
    started = []
    for decision in decisions_of(deployment):
        _require_secrets(decision.entity)
        replicas = wanted_replicas(deployment, decision.entity)
        retire(replica for replica in replicas if replica.backend != decision.backend)
        fitting = [replica for replica in replicas if replica.backend == decision.backend]
        while len(fitting) < wanted_count(decision.entity):
            fitting.append(add_replica(deployment, decision))
        for replica in fitting:
            launch(replica, alive=alive)
        started += fitting
    names = ", ".join(replica.public_id for replica in started)
    return Done(message=f"Started {len(started)} {_replicas(len(started))}: {names}.")


def _replicas(count: int) -> str:
    return "replica" if count == 1 else "replicas"


def load(deployment: Deployment) -> Outcome:
    """Wait until every replica is ready; fall back or fail when one cannot become so."""
    alive = set(runtime.runtime().running())
    waits = []
    for decision in decisions_of(deployment):
        for replica in wanted_replicas(deployment, decision.entity):
            launch(replica, alive=alive)  # where the task died before it could
            status = observe(replica)
            if replica.state == ReplicaState.READY:
                continue
            cause = cannot_start(replica, status, is_alive=replica.public_id in alive)
            if cause:
                return _give_up(decision, replica, cause)
            waits.append(f"{replica.public_id}: {replica.message or 'starting'}")
    if waits:
        return Waiting(message=" ".join(waits))
    return Done(message="Every replica is ready.")


def cannot_start(replica: Replica, status: ReplicaStatus | None, *, is_alive: bool) -> str:
    """Why a replica that is not ready never will be; empty while it may."""
    age = timezone.now() - (replica.launched_at or replica.created_at)
    if replica.state in {ReplicaState.CRASHED, ReplicaState.STOPPED}:
        return replica.message or "The server ended before it was ready."
    if age > timedelta(seconds=settings.REPLICA_START_DEADLINE_S + 30):
        return f"It was not ready within {settings.REPLICA_START_DEADLINE_S} s."
    if not is_alive and status is not None and age > LAUNCH_GRACE:
        return "Its supervisor ended before the server was ready."
    return ""


def _give_up(decision: BackendDecision, replica: Replica, cause: str) -> Outcome:
    entity = decision.entity
    if decision.backend == Backend.TRITON:
        message = f"Triton could not load the model: {cause}"
        fall_back(decision, ReasonCode.TRITON_LOAD_FAILED, message)
        return FellBack(message=f"{entity.name}: {message}")
    raise StepFailed(
        "REPLICA_FAILED",
        f"The server of {entity.name} could not be started: {cause}",
        entity=entity,
        log_excerpt=excerpt(replica),
    )
