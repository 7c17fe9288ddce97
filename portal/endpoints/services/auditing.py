"""What people do to endpoints, as the audit log keeps it: never a variable's value."""

from __future__ import annotations

from typing import Any

from portal.accounts.models import User
from portal.audit import services as audit
from portal.audit.services import Action
from portal.endpoints.models import Endpoint, EndpointConfig, ServedEntity

__all__ = ["Action", "config_detail", "note"]


def note(user: User, endpoint: Endpoint, action: Action, **detail: Any) -> None:
    """Record that `user` did `action`; call it within the transaction of the act."""
    audit.record(
        action,
        audit.ObjectKind.ENDPOINT,
        endpoint.name,
        user=user,
        endpoint_id=endpoint.public_id,
        **detail,
    )


def config_detail(config: EndpointConfig) -> dict[str, Any]:
    """What a config serves, and the names of the variables that it sets."""
    return {
        "config_version": config.version,
        "served_entities": [_entity(entity) for entity in config.entities.all()],
    }


def _entity(entity: ServedEntity) -> dict[str, Any]:
    return {
        "name": entity.name,
        "entity_name": entity.entity_name,
        "entity_version": entity.entity_version,
        "workload_type": entity.workload_type,
        "throughput_optimized": entity.throughput_optimized,
        "traffic_percentage": entity.traffic_percentage,
        "environment_variables": sorted(entity.environment_vars),
    }
