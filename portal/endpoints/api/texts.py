"""What the API answers as text: an endpoint's metrics."""

from __future__ import annotations

import json

from portal.endpoints.models import Endpoint
from portal.endpoints.reading import live_replicas, triton_view
from portal.endpoints.states import Ready, ReplicaState, TritonStatus


def metrics(endpoint: Endpoint) -> str:
    """The endpoint's state in Prometheus' text format."""
    lines = [
        "# HELP shoal_endpoint_ready Whether every served entity can answer.",
        "# TYPE shoal_endpoint_ready gauge",
        f"shoal_endpoint_ready{_labels(endpoint=endpoint.name)} "
        f"{int(endpoint.ready == Ready.READY)}",
        "# HELP shoal_replicas Replicas of each served entity by state.",
        "# TYPE shoal_replicas gauge",
    ]
    entities = list(endpoint.active_config.entities.all()) if endpoint.active_config else []
    for entity in entities:
        replicas = live_replicas(entity)
        for state in ReplicaState:
            count = sum(replica.state == state for replica in replicas)
            labels = _labels(endpoint=endpoint.name, served_entity=entity.name, state=state.value)
            lines.append(f"shoal_replicas{labels} {count}")
    lines += [
        "# HELP shoal_replica_restarts_total Restarts of each live replica's server.",
        "# TYPE shoal_replica_restarts_total counter",
    ]
    for entity in entities:
        for replica in live_replicas(entity):
            labels = _labels(
                endpoint=endpoint.name, served_entity=entity.name, replica=replica.public_id
            )
            lines.append(f"shoal_replica_restarts_total{labels} {replica.restarts}")
    lines += [
        "# HELP shoal_triton_active Whether every live replica proves that Triton serves it.",
        "# TYPE shoal_triton_active gauge",
    ]
    for entity in entities:
        active = int(triton_view(entity).status == TritonStatus.ACTIVE)
        labels = _labels(endpoint=endpoint.name, served_entity=entity.name)
        lines.append(f"shoal_triton_active{labels} {active}")
    return "\n".join(lines) + "\n"


def _labels(**labels: str) -> str:
    inner = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
    return f"{{{inner}}}"
