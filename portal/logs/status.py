"""Whether Triton is attached to what the log shows, with the lines that prove it."""

from __future__ import annotations

from dataclasses import dataclass

from portal.endpoints.models import Endpoint, Replica, ServedEntity
from portal.endpoints.reading import EvidenceView, TritonView, triton_view
from portal.endpoints.states import TritonStatus
from portal.logs.sources import Choice, current_entities


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonRow:
    """A served entity and what is known about Triton on it."""

    entity: ServedEntity
    view: TritonView
    is_pending: bool  # of the config that is not active yet

    @property
    def is_moving(self) -> bool:
        """Whether it is worth asking again soon."""
        return self.view.status in {TritonStatus.STARTING, TritonStatus.PENDING_REDEPLOY}

    @property
    def by_replica(self) -> dict[str, list[EvidenceView]]:
        """The evidence by the replica that shows it."""
        found: dict[str, list[EvidenceView]] = {}
        for fact in self.view.evidence:
            found.setdefault(fact.replica_id, []).append(fact)
        return found


def triton_rows(endpoint: Endpoint, choice: Choice) -> list[TritonRow]:
    """The served entities that the chosen log is about."""
    entities = current_entities(endpoint)
    if choice.replica:
        of = Replica.objects.filter(public_id=choice.replica).values_list("entity", flat=True)
        entities = [entity for entity in entities if entity.pk in of] or entities
    elif choice.entity:
        entities = [entity for entity in entities if entity.name == choice.entity]
    return [
        TritonRow(
            entity=entity,
            view=triton_view(entity),
            is_pending=entity.config_id != endpoint.active_config_id,
        )
        for entity in entities
    ]
