"""The reconciler: moves what runs towards what is wanted, and writes down what is so.

It is called every few seconds and after each act of a person, may run twice at once, and heals
whatever was lost: a deployment's task, a replica's supervisor, everything in Redis.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models, transaction
from django.db.models import Q
from django.utils import timezone

from portal import bus
from portal.accounts.services import all_principals
from portal.endpoints import runtime
from portal.endpoints.deployment.machine import is_stale
from portal.endpoints.deployment.replicas import (
    LAUNCH_GRACE,
    add_replica,
    launch,
    observe,
    stop,
    wanted_count,
)
from portal.endpoints.models import Deployment, Endpoint, Replica, ServedEntity
from portal.endpoints.routes import all_routes, latest_decision
from portal.endpoints.services.moves import move_entity, move_ready, move_replica
from portal.endpoints.states import UNDER_WAY, EntityState, Ready, ReplicaPurpose, ReplicaState
from portal.queue import enqueue

log = logging.getLogger(__name__)

KEEP_STOPPED = timedelta(hours=24)
"""How long a stopped replica's log can still be read."""
KILL_AFTER = timedelta(seconds=settings.REQUEST_TIMEOUT_S + 60)
BACK_OFF_WINDOW = timedelta(minutes=10)
MAX_BACK_OFF_S = 120


def reconcile() -> None:
    """One round: mend, write down, publish."""
    resend_stale_deployments()
    alive = set(runtime.runtime().running())
    drop_superfluous_wishes()
    for replica in _unfinished():
        _look_at(replica, alive)
    stop_orphans(alive)
    for endpoint in Endpoint.objects.existing().filter(is_stopped=False):
        if endpoint.active_config is not None:
            mend(endpoint, alive)
            tell_truth(endpoint)
    remove_deleted_endpoints()
    remove_old_replicas()
    bus.publish_all(all_routes(), all_principals())


def resend_stale_deployments() -> None:
    """Send the task of each deployment that nobody has looked at for too long."""
    for deployment in Deployment.objects.filter(state__in=UNDER_WAY):
        if is_stale(deployment):
            log.warning("deployment %s went silent; its task is sent again", deployment.pk)
            enqueue("endpoints.advance", deployment.pk)


def drop_superfluous_wishes() -> None:
    """Replicas of what is neither active nor being deployed are not wanted.

    Nor are those that were measured by a deployment that has ended.
    """
    busy = Deployment.objects.filter(state__in=UNDER_WAY).values("endpoint")
    of_active = Q(
        entity__config__endpoint__active_config=models.F("entity__config"),
        entity__config__endpoint__is_stopped=False,
        entity__config__endpoint__is_deleting=False,
    )
    Replica.objects.filter(is_wanted=True, purpose=ReplicaPurpose.PROFILE).exclude(
        deployment__state__in=UNDER_WAY
    ).update(is_wanted=False)
    Replica.objects.filter(is_wanted=True).exclude(
        entity__config__endpoint__in=busy, entity__config__endpoint__is_deleting=False
    ).exclude(of_active).update(is_wanted=False)


def _unfinished() -> models.QuerySet[Replica]:
    return Replica.objects.exclude(state=ReplicaState.STOPPED).select_related(
        "deployment__config", "entity__config__endpoint", "entity__model_version__model"
    )


def _look_at(replica: Replica, alive: set[str]) -> None:
    """Observe one replica; stop what should not run, retire what has ended."""
    observe(replica)
    is_alive = replica.public_id in alive
    if not replica.is_wanted:
        if not is_alive:
            _end(replica, "It was stopped.")
        elif replica.state == ReplicaState.DRAINING and _is_over(replica.state_since, KILL_AFTER):
            runtime.runtime().kill(replica.public_id)
        else:
            stop(replica)
        return
    launched = replica.launched_at
    if launched is None or is_alive or not _is_over(launched, LAUNCH_GRACE):
        return
    if replica.state == ReplicaState.LAUNCHING:
        return  # its launch did not happen; it is repeated
    if replica.deployment.state in UNDER_WAY and not _is_active(replica):
        return  # its deployment decides
    runtime.runtime().kill(replica.public_id)  # what its server may have left
    _end(replica, "Its supervisor ended unexpectedly.")


def _is_active(replica: Replica) -> bool:
    return replica.entity.config.endpoint.active_config_id == replica.entity.config_id


def _is_over(since: datetime, span: timedelta) -> bool:
    return timezone.now() - since > span


@transaction.atomic
def _end(replica: Replica, reason: str) -> None:
    Replica.objects.filter(pk=replica.pk).update(is_wanted=False)
    if replica.state != ReplicaState.STOPPED:
        move_replica(replica, ReplicaState.STOPPED, reason=reason)


def stop_orphans(alive: set[str]) -> None:
    """Stop supervisors that no row knows."""
    known = set(Replica.objects.filter(public_id__in=alive).values_list("public_id", flat=True))
    for replica_id in alive - known:
        log.warning("replica %s runs but nobody knows it; it is stopped", replica_id)
        runtime.runtime().stop(replica_id)


def mend(endpoint: Endpoint, alive: set[str]) -> None:
    """Have as many replicas of each active entity as it asks for."""
    if endpoint.active_config is None:
        return
    for entity in endpoint.active_config.entities.select_related("model_version__model"):
        decision = latest_decision(entity)
        if decision is None:
            continue
        serving = _unfinished().filter(entity=entity, is_wanted=True, purpose=ReplicaPurpose.SERVE)
        found = list(serving.filter(backend=decision.backend))
        surplus = found[wanted_count(entity) :]
        for replica in surplus:
            Replica.objects.filter(pk=replica.pk).update(is_wanted=False)
        missing = wanted_count(entity) - len(found)
        if missing > 0 and _may_try(entity):
            for _ in range(missing):
                found.append(add_replica(decision.deployment, decision))
        for replica in found[: wanted_count(entity)]:
            launch(replica, alive=alive)


def _may_try(entity: ServedEntity) -> bool:
    """Back off when replicas of the entity keep ending."""
    recent = entity.replicas.filter(
        is_wanted=False,
        purpose=ReplicaPurpose.SERVE,
        created_at__gt=timezone.now() - BACK_OFF_WINDOW,
    ).order_by("-created_at")
    if recent.count() <= wanted_count(entity):
        return True
    wait_s = min(MAX_BACK_OFF_S, 2 ** min(recent.count(), 10))
    newest = recent[0]
    return _is_over(newest.created_at, timedelta(seconds=wait_s))


def tell_truth(endpoint: Endpoint) -> None:
    """Write down which entities answer, and whether the endpoint does."""
    if endpoint.active_config is None:
        return
    silent: list[str] = []
    for entity in endpoint.active_config.entities.all():
        replicas = entity.replicas.filter(is_wanted=True, purpose=ReplicaPurpose.SERVE)
        if replicas.filter(state=ReplicaState.READY).exists():
            move_entity(entity, EntityState.DEPLOYMENT_READY)
            continue
        silent.append(entity.name)
        if entity.state == EntityState.DEPLOYMENT_READY:
            newest = replicas.last()
            reason = newest.message if newest else "A replica is being started."
            move_entity(entity, EntityState.DEPLOYMENT_RECOVERING, reason=reason)
    if silent:
        move_ready(endpoint, Ready.NOT_READY, reason=f"No replica of {', '.join(silent)} is ready.")
    else:
        move_ready(endpoint, Ready.READY)


def remove_deleted_endpoints() -> None:
    """Remove deleted endpoints whose replicas have all ended, with folders and rows."""
    for endpoint in Endpoint.objects.filter(is_deleting=True):
        replicas = Replica.objects.filter(entity__config__endpoint=endpoint)
        if replicas.exclude(state=ReplicaState.STOPPED).exists():
            continue
        for replica_id in replicas.values_list("public_id", flat=True):
            runtime.runtime().remove(replica_id)
        with transaction.atomic():
            Endpoint.objects.filter(pk=endpoint.pk).update(active_config=None, pending_config=None)
            endpoint.delete()


def remove_old_replicas() -> None:
    """Remove replicas that ended long ago, with their logs."""
    old = Replica.objects.filter(
        state=ReplicaState.STOPPED, is_wanted=False, state_since__lt=timezone.now() - KEEP_STOPPED
    )
    for replica in old:
        runtime.runtime().remove(replica.public_id)
        replica.delete()
