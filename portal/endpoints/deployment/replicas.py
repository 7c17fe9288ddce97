"""Replicas as deployments and the reconciler handle them: make, launch, observe, retire.

Every function may be repeated or interrupted anywhere: a row is written before its process is
started, and a launch is claimed on the row, so that two of us never start the same replica.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from datetime import timedelta

from django.db.models import Q, QuerySet
from django.utils import timezone

from portal.endpoints import runtime
from portal.endpoints.batching import batching_to_json
from portal.endpoints.models import BackendDecision, Deployment, Replica, ServedEntity
from portal.endpoints.reading import apply_status, line_prefix
from portal.endpoints.services.moves import move_replica
from portal.endpoints.states import REPLICA_FOLLOWS, ReplicaPurpose, ReplicaState
from portal.registry import services as registry
from serving.errors import LaunchError
from serving.spec import Batching, ReplicaStatus
from serving.workloads import replicas_for

log = logging.getLogger(__name__)

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 5
LAUNCH_GRACE = timedelta(seconds=10)
"""A launched supervisor is seen alive within this time; else the launch did not happen."""
SEEN_EVERY = timedelta(seconds=2)
EXCERPT_LINES = 40


def wanted_count(entity: ServedEntity) -> int:
    """Replicas that the entity's least concurrency asks for."""
    return replicas_for(entity.workload_type, entity.min_provisioned_concurrency)


def wanted_replicas(deployment: Deployment, entity: ServedEntity) -> list[Replica]:
    """The deployment's replicas of the entity that are to serve."""
    return list(_wanted(deployment, entity).filter(purpose=ReplicaPurpose.SERVE))


def profile_replica(deployment: Deployment, entity: ServedEntity) -> Replica | None:
    """The deployment's replica of the entity that is being measured, if there is one."""
    return _wanted(deployment, entity).filter(purpose=ReplicaPurpose.PROFILE).first()


def _wanted(deployment: Deployment, entity: ServedEntity) -> QuerySet[Replica]:
    return Replica.objects.filter(
        deployment=deployment, entity=entity, is_wanted=True
    ).select_related("deployment", "entity__config__endpoint", "entity__model_version__model")


def add_replica(
    deployment: Deployment, decision: BackendDecision, *, measured_with: Batching | None = None
) -> Replica:
    """Write a replica's row; `launch` starts it.

    Args:
        deployment: What it belongs to.
        decision: Which entity it serves, and on which backend.
        measured_with: It serves nobody; it is measured with this batching.
    """
    taken = Replica.objects.filter(is_wanted=True).values_list("device", flat=True)
    device = runtime.device_for(decision.entity.workload_type, taken=taken)
    return Replica.objects.create(
        public_id=_free_id(),
        entity=decision.entity,
        deployment=deployment,
        backend=decision.backend,
        device=runtime.device_label(device),
        message="Waits for its supervisor.",
        purpose=ReplicaPurpose.PROFILE if measured_with else ReplicaPurpose.SERVE,
        batching=batching_to_json(measured_with) if measured_with else {},
    )


def _free_id() -> str:
    while True:
        found = "".join(secrets.choice(LETTERS) for _ in range(ID_LENGTH))
        if not Replica.objects.filter(public_id=found).exists():
            return found


def launch(replica: Replica, *, alive: Iterable[str]) -> None:
    """Start a replica that has not been started yet; nothing happens to one that has."""
    at = timezone.now()
    if replica.state != ReplicaState.LAUNCHING or replica.public_id in alive:
        return
    claimed = Replica.objects.filter(
        Q(launched_at=None) | Q(launched_at__lt=at - LAUNCH_GRACE),
        pk=replica.pk,
        state=ReplicaState.LAUNCHING,
        is_wanted=True,
    ).update(launched_at=at)
    if not claimed:
        return
    replica.launched_at = at
    version = replica.entity.model_version
    if version is None:
        _crash(replica, "Its model version was deleted.")
        return
    prepared = registry.ensure_prepared(version)
    if prepared.environment is None or prepared.model_directory is None:
        Replica.objects.filter(pk=replica.pk).update(launched_at=None, message=prepared.message)
        return
    try:
        runtime.launch(
            replica, environment=prepared.environment, model_directory=prepared.model_directory
        )
    except LaunchError as exc:
        _crash(replica, exc.message)


def _crash(replica: Replica, reason: str) -> None:
    move_replica(replica, ReplicaState.CRASHED, reason=reason)


def observe(replica: Replica) -> ReplicaStatus | None:
    """Bring the row up to what the replica says of itself; True facts only, no wishes."""
    status = runtime.status(replica)
    if status is None:
        return None
    before = (replica.address, replica.evidence, replica.restarts, replica.message)
    seen_before = replica.seen_at
    state = ReplicaState(status.state.value)
    if state in REPLICA_FOLLOWS[ReplicaState(replica.state)]:
        move_replica(replica, state, reason=status.message)
    apply_status(replica, status)
    changed = before != (replica.address, replica.evidence, replica.restarts, replica.message)
    is_due = seen_before is None or (replica.seen_at or seen_before) - seen_before > SEEN_EVERY
    if changed or is_due:
        replica.save(
            update_fields=[
                "message",
                "address",
                "metrics_address",
                "restarts",
                "exit_code",
                "evidence",
                "seen_at",
                "ready_at",
            ]
        )
    return status


def retire(replicas: Iterable[Replica]) -> None:
    """Let replicas drain and stop; the reconciler sees it through."""
    for replica in replicas:
        Replica.objects.filter(pk=replica.pk).update(is_wanted=False)
        replica.is_wanted = False
        stop(replica)


def end(replica: Replica, reason: str) -> None:
    """End a replica that nobody sends requests to, now."""
    Replica.objects.filter(pk=replica.pk).update(is_wanted=False)
    replica.is_wanted = False
    runtime.runtime().kill(replica.public_id)
    replica.refresh_from_db(fields=["state"])  # the reconciler may have seen it go
    if replica.state != ReplicaState.STOPPED:
        move_replica(replica, ReplicaState.STOPPED, reason=reason)


def stop(replica: Replica) -> None:
    """Ask an unwanted replica's supervisor to drain and stop."""
    runtime.runtime().stop(replica.public_id)
    if ReplicaState.DRAINING in REPLICA_FOLLOWS[ReplicaState(replica.state)]:
        move_replica(replica, ReplicaState.DRAINING, reason="It takes no new requests.")


def excerpt(replica: Replica) -> str:
    """The replica's last log lines, as the log viewer shows them."""
    prefix = line_prefix(replica)
    lines = runtime.read_logs(replica, limit=EXCERPT_LINES)
    return "\n".join(f"{prefix} {line.text}" for line in lines)
