"""What the gateway is told about an endpoint, built from its rows, and when."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Prefetch

from portal import bus
from portal.endpoints.batching import max_in_flight
from portal.endpoints.models import BackendDecision, Endpoint, Replica, ServedEntity
from portal.endpoints.states import (
    ConfigUpdate,
    PermissionLevel,
    ReplicaPurpose,
    ReplicaState,
)
from serving.spec import (
    Backend,
    Batching,
    LimitKey,
    RateLimit,
    Route,
    RouteEntity,
    RouteReplica,
)


def publish(endpoint: Endpoint) -> None:
    """Tell every gateway of the endpoint as it stands after the commit."""
    transaction.on_commit(partial(_publish, endpoint.pk))


def withdraw(name: str) -> None:
    """Let every gateway forget the endpoint after the commit."""
    transaction.on_commit(partial(bus.remove_route, name))


def all_routes() -> dict[str, Route]:
    """Every existing endpoint's route, by name."""
    entities = ServedEntity.objects.select_related("model_version").prefetch_related(
        "decisions", "replicas"
    )
    found = (
        Endpoint.objects.existing()
        .select_related("active_config")
        .prefetch_related("permissions", Prefetch("active_config__entities", entities))
    )
    return {endpoint.name: build_route(endpoint) for endpoint in found}


def _publish(pk: int) -> None:
    endpoint = Endpoint.objects.existing().filter(pk=pk).first()
    if endpoint is not None:
        bus.publish_route(build_route(endpoint))


def build_route(endpoint: Endpoint) -> Route:
    """The endpoint's active config with the replicas that take requests."""
    config = None if endpoint.is_stopped else endpoint.active_config
    entities = config.entities.all() if config else ()
    is_updating = endpoint.config_update == ConfigUpdate.IN_PROGRESS
    levels: dict[str, str] = {str(endpoint.creator_id): PermissionLevel.CAN_MANAGE.value}
    groups: dict[str, str] = {}
    for permission in endpoint.permissions.all():
        level = PermissionLevel(permission.level)
        if permission.user_id is None:
            groups[permission.group_name] = level.value
            continue
        levels.setdefault(str(permission.user_id), level.value)  # the creator's own stays
    return Route(
        endpoint_id=endpoint.public_id,
        endpoint_name=endpoint.name,
        message=_message(endpoint),
        is_stopped=endpoint.is_stopped and not is_updating,
        request_timeout_s=float(settings.REQUEST_TIMEOUT_S),
        entities=tuple(_entity(entity) for entity in entities),
        user_levels=levels,
        group_levels=groups,
        rate_limits=rate_limits(endpoint),
    )


def rate_limits(endpoint: Endpoint) -> tuple[RateLimit, ...]:
    """The limits of the AI gateway and those of the older call."""
    kept = [*endpoint.ai_gateway.get("rate_limits", ()), *endpoint.rate_limits]
    return tuple(
        RateLimit(
            key=LimitKey(limit.get("key", LimitKey.ENDPOINT)),
            calls=limit["calls"],
            principal=limit.get("principal", ""),
        )
        for limit in kept
        if isinstance(limit.get("calls"), int)
    )


def _message(endpoint: Endpoint) -> str:
    if endpoint.active_config_id is not None and not endpoint.is_stopped:
        return f"Endpoint “{endpoint.name}” has no ready replica now; it is recovering."
    if endpoint.config_update == ConfigUpdate.IN_PROGRESS:
        return f"Endpoint “{endpoint.name}” is being deployed and is not ready yet."
    if endpoint.is_stopped:
        return f"Endpoint “{endpoint.name}” is stopped. Start it to query it."
    return f"Endpoint “{endpoint.name}” is not ready: its deployment did not succeed."


def _entity(entity: ServedEntity) -> RouteEntity:
    decision = latest_decision(entity)
    batching = batching_of(decision)
    backend = Backend(decision.backend) if decision else Backend.STANDARD
    version = entity.model_version
    return RouteEntity(
        name=entity.name,
        entity_name=entity.entity_name,
        entity_version=entity.entity_version,
        traffic_percentage=entity.traffic_percentage,
        backend=backend,
        signature=version.signature if version else None,
        max_batch_size=batching.max_batch_size,
        max_in_flight=max_in_flight(entity, backend, batching),
        instance_count=batching.instance_count,
        replicas=tuple(
            RouteReplica(replica_id=replica.public_id, address=replica.address)
            for replica in entity.replicas.all()
            if _takes_requests(replica)
        ),
    )


def _takes_requests(replica: Replica) -> bool:
    """Ready, or about to be again: a restarted server keeps its address, so callers may wait."""
    if not replica.is_wanted or not replica.address or replica.purpose != ReplicaPurpose.SERVE:
        return False
    is_back_soon = replica.state == ReplicaState.STARTING and replica.ready_at is not None
    return replica.state == ReplicaState.READY or is_back_soon


def latest_decision(entity: ServedEntity) -> BackendDecision | None:
    """The backend decision in force for the entity: its latest deployment's."""
    return max(entity.decisions.all(), key=lambda decision: decision.pk, default=None)


def batching_of(decision: BackendDecision | None) -> Batching:
    """The batching that a decision put in force."""
    return batching_from_json(decision.batching if decision else {})


def batching_from_json(given: Mapping[str, Any]) -> Batching:
    """A batching as a row keeps it."""
    kept = dict(given)
    if "preferred_batch_size" in kept:
        kept["preferred_batch_size"] = tuple(kept["preferred_batch_size"])
    return Batching(**kept)
