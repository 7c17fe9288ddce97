"""What pages and the API say about endpoints: read models over the rows, nothing is written here.

"Triton active" is derived only from evidence: every live wanted replica must show all of it. Where
a row has not been refreshed lately (the workers are down), the replica itself is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Prefetch, QuerySet
from django.utils import timezone

from portal.endpoints import runtime
from portal.endpoints.models import (
    BackendDecision,
    Deployment,
    Endpoint,
    EndpointConfig,
    Replica,
    ServedEntity,
)
from portal.endpoints.routes import latest_decision
from portal.endpoints.services.validation import eligibility_of
from portal.endpoints.states import (
    CONFIG_UPDATE_TONES,
    ENTITY_TONES,
    REPLICA_TONES,
    TRITON_TONES,
    UNDER_WAY,
    ConfigUpdate,
    DeploymentState,
    EntityState,
    Ready,
    ReplicaPurpose,
    ReplicaState,
    TritonStatus,
)
from portal.ui.tones import Chip, Tone
from serving.eligibility import ReasonCode
from serving.spec import Backend, EvidenceKind, ReplicaStatus
from serving.triton.evidence import is_triton_active

FRESH_FOR = timedelta(seconds=12)
"""The reconciler refreshes each row every 5 s; older than this, the replica itself is asked."""

EVIDENCE_TITLES: dict[EvidenceKind, str] = {
    EvidenceKind.SERVER_VERSION: "Triton answers with its version",
    EvidenceKind.MODEL_LOADED: "Triton loaded the model",
    EvidenceKind.MODEL_READY_ROW: "The model table says READY",
    EvidenceKind.HTTP_SERVICE: "The HTTP service started",
    EvidenceKind.MODEL_READY: "Triton answers that the model is ready",
}

LINE_PREFIXES = {Backend.TRITON: "ts", Backend.STANDARD: "std", Backend.ENTRYPOINT: "own"}
LIVE = {ReplicaState.LAUNCHING, ReplicaState.STARTING, ReplicaState.READY, ReplicaState.CRASHED}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """One fact that proves that Triton runs; `line` is its number in the replica's log."""

    kind: str
    title: str
    text: str
    line: int | None
    replica_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonView:
    """What is known about Triton on a served entity."""

    status: TritonStatus
    chip: Chip
    reason_code: str
    message: str
    evidence: list[EvidenceView]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingField:
    """A batching value in force, where it came from ("override", "profile", "default"), and why."""

    key: str
    value: int | list[int]
    source: str
    reason: str


def with_everything(endpoints: QuerySet[Endpoint]) -> QuerySet[Endpoint]:
    """`endpoints` with all that lists and the API show, in a fixed number of queries."""
    entities = ServedEntity.objects.select_related(
        "model_version__model", "creator", "config__endpoint"
    ).prefetch_related(
        Prefetch("decisions", BackendDecision.objects.select_related("deployment")),
        "replicas",
    )
    return endpoints.select_related(
        "creator", "changed_by", "active_config", "pending_config"
    ).prefetch_related(
        "tags",
        "permissions",
        Prefetch("active_config__entities", entities),
        Prefetch("pending_config__entities", entities),
        Prefetch("deployments", Deployment.objects.filter(state__in=UNDER_WAY)),
    )


def shown_config(endpoint: Endpoint) -> EndpointConfig | None:
    """The config that a summary shows: the active one, before the first success the pending one."""
    return endpoint.active_config or endpoint.pending_config


def current_deployment(endpoint: Endpoint) -> Deployment | None:
    """The newest deployment, under way or ended."""
    return (
        Deployment.objects.filter(endpoint=endpoint)
        .select_related("config")
        .prefetch_related("steps")
        .first()
    )


def live_replicas(entity: ServedEntity) -> list[Replica]:
    """The entity's wanted serving replicas that live, refreshed where their rows are old."""
    return [
        _refreshed(replica)
        for replica in entity.replicas.all()
        if replica.is_wanted and replica.purpose == ReplicaPurpose.SERVE and replica.state in LIVE
    ]


def line_prefix(replica: Replica) -> str:
    """What stands before each of the replica's log lines, such as `[ts/g7zw9]`."""
    return f"[{LINE_PREFIXES[Backend(replica.backend)]}/{replica.public_id}]"


def replica_chip(replica: Replica) -> Chip:
    """The replica's state, with its message as the reason."""
    state = ReplicaState(replica.state)
    return Chip(state.label, REPLICA_TONES[state], replica.message)


def entity_chip(entity: ServedEntity) -> Chip:
    """The served entity's state, with its message as the reason."""
    state = EntityState(entity.state)
    return Chip(state.label, ENTITY_TONES[state], entity.state_message)


def endpoint_chips(endpoint: Endpoint) -> tuple[Chip, Chip | None]:
    """The ready chip, and the update chip while there is something to say about an update."""
    update = ConfigUpdate(endpoint.config_update)
    chip = None
    if update != ConfigUpdate.NOT_UPDATING:
        reason = endpoint.config_update_message
        if update == ConfigUpdate.IN_PROGRESS and not reason:
            version = endpoint.pending_config.version if endpoint.pending_config else None
            reason = f"Config version {version} is being deployed." if version else ""
        chip = Chip(update.label, CONFIG_UPDATE_TONES[update], reason)
    return _ready_chip(endpoint, update), chip


def _ready_chip(endpoint: Endpoint, update: ConfigUpdate) -> Chip:
    if endpoint.is_stopped and update == ConfigUpdate.IN_PROGRESS:
        return Chip(Ready.NOT_READY.label, Tone.BUSY, "It is being started.")
    if endpoint.is_stopped:
        return Chip("Stopped", Tone.IDLE, "It was stopped; start it to query it.")
    if endpoint.ready == Ready.READY:
        silent = _silent_entity(endpoint)
        if silent is None:
            return Chip(Ready.READY.label, Tone.GOOD)
        return Chip(Ready.NOT_READY.label, Tone.WARN, f"No replica of {silent.name} answers now.")
    if endpoint.active_config is not None:
        return Chip(Ready.NOT_READY.label, Tone.WARN, "Its replicas are recovering.")
    if update == ConfigUpdate.IN_PROGRESS:
        return Chip(Ready.NOT_READY.label, Tone.BUSY, "Its first deployment is under way.")
    return Chip(Ready.NOT_READY.label, Tone.BAD, "No deployment has succeeded yet.")


def _silent_entity(endpoint: Endpoint) -> ServedEntity | None:
    """An active entity none of whose replicas is ready, seen without the reconciler's help."""
    if endpoint.active_config is None:
        return None
    for entity in endpoint.active_config.entities.all():
        if not any(replica.state == ReplicaState.READY for replica in live_replicas(entity)):
            return entity
    return None


def batching_in_force(entity: ServedEntity) -> list[BatchingField]:
    """What the newest deployment put in force; empty unless it chose Triton."""
    decision = latest_decision(entity)
    if decision is None or decision.backend != Backend.TRITON:
        return []
    sources = decision.batching.get("sources", {})
    return [
        BatchingField(
            key=key,
            value=value,
            source=sources.get(key, "default"),
            reason=decision.batching_reasons.get(key, ""),
        )
        for key, value in decision.batching.items()
        if key != "sources"
    ]


def triton_view(entity: ServedEntity) -> TritonView:
    """Whether Triton serves the entity, why or why not, and what proves it."""
    decision = latest_decision(entity)
    endpoint = entity.config.endpoint
    if endpoint.active_config_id != entity.config_id:
        return _of_pending(entity, decision)
    if endpoint.is_stopped:
        return _view(TritonStatus.STOPPED, "STOPPED", "The endpoint is stopped.")
    return _of_active(entity, decision, endpoint)


def _of_pending(entity: ServedEntity, decision: BackendDecision | None) -> TritonView:
    if entity.state in {EntityState.DEPLOYMENT_FAILED, EntityState.DEPLOYMENT_ABORTED}:
        reason = decision.reason_code if decision else "DEPLOYMENT_FAILED"
        return _view(TritonStatus.FAILED, reason, entity.state_message)
    if not entity.throughput_optimized:
        return _switched_off(decision)
    if decision is None:
        return _view(
            TritonStatus.STARTING, "DECIDING", "The deployment has not decided the backend yet."
        )
    if decision.backend != Backend.TRITON:
        return _view(TritonStatus.FELL_BACK, decision.reason_code, decision.message)
    return _view(
        TritonStatus.STARTING, decision.reason_code, "Triton is starting.", live_replicas(entity)
    )


def _switched_off(decision: BackendDecision | None) -> TritonView:
    if decision is not None and decision.backend == Backend.ENTRYPOINT:
        return _view(TritonStatus.OFF, decision.reason_code, decision.message)
    return _view(
        TritonStatus.OFF,
        ReasonCode.NOT_REQUESTED,
        "Throughput optimized is off; MLflow's scoring server runs the model.",
    )


def _of_active(
    entity: ServedEntity, decision: BackendDecision | None, endpoint: Endpoint
) -> TritonView:
    if decision is None or decision.backend != Backend.TRITON:
        return _of_standard(entity, decision, endpoint)
    replicas = live_replicas(entity)
    ready = [replica for replica in replicas if replica.state == ReplicaState.READY]
    if not ready or len(ready) < len(replicas):
        waiting = len(replicas) - len(ready)
        message = (
            f"{waiting} of {len(replicas)} replicas are starting again."
            if replicas
            else "No replica runs now; one is being started."
        )
        return _view(TritonStatus.STARTING, decision.reason_code, message, replicas)
    unproven = [r for r in ready if not is_triton_active(runtime.status_of_row(r))]
    if unproven:
        names = ", ".join(replica.public_id for replica in unproven)
        message = f"Replica {names} does not show all the evidence of Triton."
        return _view(TritonStatus.UNPROVEN, "EVIDENCE_MISSING", message, replicas)
    count = "Its replica shows" if len(ready) == 1 else f"All {len(ready)} replicas show"
    emulated = any(replica.device == "cpu-emulation" for replica in ready)
    message = f"{count} every piece of evidence." + (
        " It runs in CPU emulation: this machine has no GPU." if emulated else ""
    )
    return _view(TritonStatus.ACTIVE, decision.reason_code, message, replicas)


def _of_standard(
    entity: ServedEntity, decision: BackendDecision | None, endpoint: Endpoint
) -> TritonView:
    pending = _pending_twin(entity, endpoint)
    if pending is not None and pending.throughput_optimized and not entity.throughput_optimized:
        return _view(
            TritonStatus.PENDING_REDEPLOY,
            "UPDATING",
            "Throughput optimized is on in the config that is being deployed.",
        )
    if not entity.throughput_optimized:
        return _switched_off(decision)
    if decision is None:
        return _view(TritonStatus.UNPROVEN, "UNKNOWN", "No backend decision is on record.")
    at_deploy_time = {ReasonCode.TRITON_LOAD_FAILED, ReasonCode.NOT_BATCHABLE}
    now = eligibility_of(entity.model_version, entity.workload_type)
    if decision.reason_code not in at_deploy_time and now.is_eligible:
        message = (
            f"{decision.message} This has changed since: every rule passes now. "
            "Deploy again to bring in Triton."
        )
        return _view(TritonStatus.PENDING_REDEPLOY, decision.reason_code, message)
    return _view(TritonStatus.FELL_BACK, decision.reason_code, decision.message)


def _pending_twin(entity: ServedEntity, endpoint: Endpoint) -> ServedEntity | None:
    if endpoint.pending_config is None or endpoint.config_update != ConfigUpdate.IN_PROGRESS:
        return None
    others: Iterable[ServedEntity] = endpoint.pending_config.entities.all()
    return next((other for other in others if other.name == entity.name), None)


def _view(
    status: TritonStatus, reason_code: str, message: str, replicas: Iterable[Replica] = ()
) -> TritonView:
    return TritonView(
        status=status,
        chip=Chip(status.label, TRITON_TONES[status], message),
        reason_code=str(reason_code),
        message=message,
        evidence=[view for replica in replicas for view in evidence_of(replica)],
    )


def evidence_of(replica: Replica) -> list[EvidenceView]:
    """What a replica showed, in the order of the kinds."""
    found = {item["kind"]: runtime.evidence_from_json(item) for item in replica.evidence}
    return [
        EvidenceView(
            kind=kind.value,
            title=title,
            text=found[kind.value].text,
            line=found[kind.value].line,
            replica_id=replica.public_id,
            at=datetime.fromtimestamp(found[kind.value].at, UTC),
        )
        for kind, title in EVIDENCE_TITLES.items()
        if kind.value in found
    ]


def _refreshed(replica: Replica) -> Replica:
    """The replica with what it says itself where its row is old; the row is not written."""
    if replica.seen_at is not None and timezone.now() - replica.seen_at < FRESH_FOR:
        return replica
    if replica.state == ReplicaState.LAUNCHING:
        return replica
    found = runtime.status(replica)
    if found is None:
        replica.state, replica.message = ReplicaState.CRASHED, "Nothing is heard of it."
    else:
        apply_status(replica, found)
        replica.state = ReplicaState(found.state.value)
    return replica


def apply_status(replica: Replica, status: ReplicaStatus) -> None:
    """Copy what a replica says of itself into its row's fields, but for the state."""
    replica.message = status.message
    replica.address = status.address or replica.address  # kept while its server starts again
    replica.metrics_address = status.metrics_address or replica.metrics_address
    replica.restarts = status.restarts
    replica.exit_code = status.exit_code
    replica.evidence = [runtime.evidence_to_json(item) for item in status.evidence]
    replica.seen_at = datetime.fromtimestamp(status.beat_at, UTC)
    if status.ready_at is not None:
        replica.ready_at = datetime.fromtimestamp(status.ready_at, UTC)


def is_under_way(deployment: Deployment | None) -> bool:
    """Whether a deployment is queued or running."""
    return deployment is not None and DeploymentState(deployment.state) in UNDER_WAY
