"""Endpoints as the API answers them: the clients' shapes, and beside them what Shoal knows more."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from portal.accounts.models import ADMINS, User
from portal.endpoints import services
from portal.endpoints.models import Endpoint, EndpointConfig, Event, ServedEntity
from portal.endpoints.reading import TritonView, batching_in_force, shown_config, triton_view
from portal.endpoints.realised import realised_batching
from portal.endpoints.states import PermissionLevel
from serving.batching import Realised
from serving.tuning.profile import Profile

LEVEL_DESCRIPTIONS = {
    PermissionLevel.CAN_VIEW: "See the endpoint, its logs and its metrics.",
    PermissionLevel.CAN_QUERY: "Also query it.",
    PermissionLevel.CAN_MANAGE: "Also change, stop, share and delete it.",
}


def milliseconds(at: datetime) -> int:
    """A time as the API writes it."""
    return int(at.timestamp() * 1000)


def detailed(endpoint: Endpoint, user: User, request: HttpRequest) -> dict[str, Any]:
    """Everything about one endpoint."""
    level = services.level_of(user, endpoint)
    answer = {
        **_common(endpoint),
        "permission_level": level.value if level else None,
        "route_optimized": False,
        "ai_gateway": endpoint.ai_gateway,
        "rate_limits": endpoint.rate_limits,
        "email_notifications": endpoint.email_notifications,
        "endpoint_url": invocation_url(endpoint, request),
    }
    if endpoint.active_config is not None:
        answer["config"] = _config(endpoint.active_config)
    if endpoint.pending_config is not None:
        pending = endpoint.pending_config
        start = {"start_time": milliseconds(pending.created_at)}
        answer["pending_config"] = {**start, **_config(pending)}
    return answer


def summary(endpoint: Endpoint) -> dict[str, Any]:
    """One endpoint of a list."""
    config = shown_config(endpoint)
    entities = list(config.entities.all()) if config else []
    return {
        **_common(endpoint),
        "config": {
            "served_entities": [
                {
                    "name": entity.name,
                    "entity_name": entity.entity_name,
                    "entity_version": entity.entity_version,
                    "throughput_optimized": entity.throughput_optimized,
                }
                for entity in entities
            ],
            "served_models": [
                {
                    "name": entity.name,
                    "model_name": entity.entity_name,
                    "model_version": entity.entity_version,
                }
                for entity in entities
            ],
        },
    }


def invocation_url(endpoint: Endpoint, request: HttpRequest) -> str:
    """Where queries go."""
    path = f"/serving-endpoints/{endpoint.name}/invocations"
    return (
        f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else request.build_absolute_uri(path)
    )


def _common(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "name": endpoint.name,
        "id": endpoint.public_id,
        "creator": endpoint.creator.username,
        "creation_timestamp": milliseconds(endpoint.created_at),
        "last_updated_timestamp": milliseconds(endpoint.updated_at),
        "description": endpoint.description,
        "state": {
            "ready": endpoint.ready,
            "config_update": endpoint.config_update,
            "suspend": "SUSPENDED" if endpoint.is_stopped else "NOT_SUSPENDED",
            "config_update_message": endpoint.config_update_message,
        },
        "tags": tags(endpoint),
    }


def tags(endpoint: Endpoint) -> list[dict[str, str]]:
    """The endpoint's tags."""
    return [{"key": tag.key, "value": tag.value} for tag in endpoint.tags.all()]


def _config(config: EndpointConfig) -> dict[str, Any]:
    entities = list(config.entities.all())
    shown = [_entity(entity) for entity in entities]
    return {
        "config_version": config.version,
        "served_entities": shown,
        "served_models": [_as_model(entity) for entity in shown],
        "traffic_config": {
            "routes": [
                {
                    "served_model_name": entity.name,
                    "served_entity_name": entity.name,
                    "traffic_percentage": entity.traffic_percentage,
                }
                for entity in entities
            ]
        },
    }


def _entity(entity: ServedEntity) -> dict[str, Any]:
    answer = {
        "name": entity.name,
        "entity_name": entity.entity_name,
        "entity_version": entity.entity_version,
        "workload_type": entity.workload_type,
        "scale_to_zero_enabled": entity.scale_to_zero_enabled,
        "environment_vars": entity.environment_vars,
        "creator": entity.creator.username if entity.creator else None,
        "creation_timestamp": milliseconds(entity.created_at),
        "state": {
            "deployment": entity.state,
            "deployment_state_message": entity.state_message,
        },
        "throughput_optimized": entity.throughput_optimized,
        "batching": entity.batching,
        "batching_in_force": {
            field.key: {"value": field.value, "source": field.source, "reason": field.reason}
            for field in batching_in_force(entity)
        },
        "triton": {**triton(triton_view(entity)), "batching": batching(realised_batching(entity))},
    }
    # A size or numbers, never both: what is read is written back by typed clients.
    if entity.workload_size:
        answer["workload_size"] = entity.workload_size
    else:
        answer["min_provisioned_concurrency"] = entity.min_provisioned_concurrency
        answer["max_provisioned_concurrency"] = entity.max_provisioned_concurrency
    return answer


def triton(view: TritonView) -> dict[str, Any]:
    """What is known about Triton, with its proof."""
    return {
        "status": view.status.value,
        "reason_code": view.reason_code,
        "message": view.message,
        "evidence": [
            {
                "kind": item.kind,
                "title": item.title,
                "text": item.text,
                "line": item.line,
                "replica_id": item.replica_id,
                "timestamp": milliseconds(item.at),
            }
            for item in view.evidence
        ],
    }


def batching(found: Realised | None) -> dict[str, Any] | None:
    """What was batched lately; None where Triton does not serve or has not said yet."""
    if found is None:
        return None
    return {
        "sentence": found.sentence,
        "window_s": round(found.window_s, 1),
        "rows": found.rows,
        "batches": found.batches,
        "mean_rows": round(found.mean_rows, 2),
        "max_batch_size": found.max_batch_size,
        "rows_per_s": round(found.rows_per_s, 2),
        "queue_ms": round(found.queue_ms, 3),
        "compute_ms": round(found.compute_ms, 3),
        "distribution": [{"rows": size.rows, "batches": size.executions} for size in found.sizes],
    }


def profile(measured: Profile) -> dict[str, Any]:
    """The measurements of a model and what was chosen from them."""
    answer = asdict(measured)
    answer["measured_at"] = int(measured.measured_at * 1000)
    answer["reasons"] = dict(measured.reasons)
    del answer["chosen"]["sources"]
    return answer


def _as_model(entity: dict[str, Any]) -> dict[str, Any]:
    """The older twin of a served entity."""
    renamed = {"entity_name": "model_name", "entity_version": "model_version"}
    return {renamed.get(key, key): value for key, value in entity.items()}


def event(line: Event) -> dict[str, Any]:
    """A line of the time line."""
    return {
        "id": line.pk,
        "timestamp": milliseconds(line.at),
        "type": line.kind.upper(),
        "message": line.message,
        "actor": line.actor.username if line.actor else None,
        "served_entity_name": line.entity_name or None,
        "replica_id": line.replica_id or None,
    }


def access_control(endpoint: Endpoint) -> dict[str, Any]:
    """Who may do what: the creator and what was granted; admins by inheritance."""
    grants: dict[tuple[str, str], list[dict[str, Any]]] = {
        ("user_name", endpoint.creator.username): [_permission(PermissionLevel.CAN_MANAGE)],
        ("group_name", ADMINS): [_permission(PermissionLevel.CAN_MANAGE, inherited=True)],
    }
    for permission in endpoint.permissions.select_related("user").order_by("pk"):
        key = (
            ("user_name", permission.user.username)
            if permission.user
            else ("group_name", permission.group_name)
        )
        grants.setdefault(key, [_permission(PermissionLevel(permission.level))])
    return {
        "object_id": f"/serving-endpoints/{endpoint.public_id}",
        "object_type": "serving-endpoint",
        "access_control_list": [
            {kind: name, "display_name": name, "all_permissions": levels}
            for (kind, name), levels in grants.items()
        ],
    }


def _permission(level: PermissionLevel, *, inherited: bool = False) -> dict[str, Any]:
    answer: dict[str, Any] = {"permission_level": level.value, "inherited": inherited}
    if inherited:
        answer["inherited_from_object"] = ["/serving-endpoints/"]
    return answer


def permission_levels() -> dict[str, Any]:
    """The levels with what they allow."""
    return {
        "permission_levels": [
            {"permission_level": level.value, "description": LEVEL_DESCRIPTIONS[level]}
            for level in PermissionLevel
        ]
    }
