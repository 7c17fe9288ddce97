"""Realised batching of a served entity: what its replicas say that they batched, read."""

from __future__ import annotations

from portal.endpoints import runtime
from portal.endpoints.models import ServedEntity
from portal.endpoints.routes import batching_of, latest_decision
from portal.endpoints.states import ReplicaPurpose, ReplicaState
from serving.batching import Realised, realised
from serving.spec import Backend


def realised_batching(entity: ServedEntity) -> Realised | None:
    """What its ready replicas batched lately; None off Triton, and until one has said something."""
    decision = latest_decision(entity)
    if decision is None or decision.backend != Backend.TRITON:
        return None
    said = [
        runtime.status(replica)
        for replica in entity.replicas.all()
        if replica.is_wanted
        and replica.state == ReplicaState.READY
        and replica.purpose == ReplicaPurpose.SERVE
    ]
    seen = [each.batching_seen for each in said if each and each.batching_seen]
    return realised(seen, batching_of(decision))
