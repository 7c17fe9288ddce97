"""The one adapter between the portal's rows and the engine's runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

from django.conf import settings

from portal.endpoints.batching import max_in_flight
from portal.endpoints.models import Replica
from portal.endpoints.routes import batching_from_json, batching_of
from portal.secrets.services import SecretUnavailable, resolve_all
from serving.devices import find_devices
from serving.errors import LaunchError
from serving.runtime import Runtime
from serving.runtime import last_line_number as _last_line_number
from serving.runtime import read_logs as _read_logs
from serving.runtime.processes import ProcessRuntime
from serving.spec import (
    Backend,
    Device,
    DeviceKind,
    Evidence,
    EvidenceKind,
    LogLine,
    PythonEnvironment,
    ReplicaSpec,
    ReplicaState,
    ReplicaStatus,
)
from serving.workloads import WORKLOAD_TYPES


@cache
def runtime() -> Runtime:
    """Where replicas run: processes of this node."""
    return ProcessRuntime(Path(settings.REPLICAS_DIR), settings.REDIS_URL)


def device_for(workload_type: str, *, taken: Iterable[str] = ()) -> Device:
    """The device that a new replica on this workload type gets here: the least taken GPUs.

    Args:
        workload_type: A key of `WORKLOAD_TYPES`.
        taken: Labels of the devices that other replicas compute on.

    Raises:
        LaunchError: GPUs are asked for by the settings, and there is none.
    """
    kind = WORKLOAD_TYPES[workload_type]
    if not kind.is_gpu:
        return Device(kind=DeviceKind.CPU)
    found = [d for d in find_devices(settings.ACCELERATOR) if d.kind == DeviceKind.CUDA]
    indices = sorted({index for device in found for index in device.indices})
    if not indices:
        return Device(kind=DeviceKind.CPU_EMULATION)
    load = Counter(index for label in taken for index in device_from_label(label).indices)
    least = sorted(indices, key=lambda index: (load[index], index))[: kind.gpus]
    return Device(kind=DeviceKind.CUDA, indices=tuple(sorted(least)))


def device_label(device: Device) -> str:
    """How a device is kept and shown: "cpu", "cpu-emulation", "cuda:0"."""
    if device.kind != DeviceKind.CUDA:
        return device.kind.value
    return f"cuda:{','.join(str(index) for index in device.indices)}"


def device_from_label(label: str) -> Device:
    """What `device_label` wrote."""
    kind, _, indices = label.partition(":")
    return Device(
        kind=DeviceKind(kind), indices=tuple(int(index) for index in indices.split(",") if index)
    )


def launch(replica: Replica, *, environment: PythonEnvironment, model_directory: Path) -> None:
    """Start the replica's supervisor.

    Its specification is the only place where secrets stand in the clear.

    Raises:
        LaunchError: It could not be started, or a secret is not there for the endpoint's creator.
    """
    entity, config = replica.entity, replica.entity.config
    try:
        resolved = resolve_all(entity.environment_vars, config.endpoint.creator)
    except SecretUnavailable as exc:
        raise LaunchError(exc.message) from exc
    version = entity.model_version
    backend = Backend(replica.backend)
    batching = (
        batching_from_json(replica.batching)
        if replica.batching
        else batching_of(entity.decisions.filter(deployment=replica.deployment).first())
    )
    runtime().launch(
        ReplicaSpec(
            replica_id=replica.public_id,
            directory=replica.directory,
            endpoint_id=config.endpoint.public_id,
            endpoint_name=config.endpoint.name,
            served_entity_name=entity.name,
            config_version=config.version,
            backend=backend,
            model_directory=model_directory,
            environment=environment,
            signature=version.signature if version else None,
            environment_variables=resolved.variables,
            secret_names=resolved.secret_names,
            device=device_from_label(replica.device),
            batching=batching,
            max_in_flight=max_in_flight(entity, backend, batching),
            redis_url=settings.REDIS_URL,
            start_deadline_s=float(settings.REPLICA_START_DEADLINE_S),
            drain_deadline_s=float(settings.REQUEST_TIMEOUT_S + 5),
            request_timeout_s=float(settings.REQUEST_TIMEOUT_S),
            entrypoint=version.entrypoint if version else "",
            triton_home=Path(settings.TRITON_HOME) if settings.TRITON_HOME else None,
        )
    )


def status(replica: Replica) -> ReplicaStatus | None:
    """What the replica says of itself now; None before it said anything."""
    return runtime().status(replica.public_id)


def status_of_row(replica: Replica) -> ReplicaStatus:
    """What is remembered of the replica, in the engine's terms."""
    state = ReplicaState.STARTING if replica.state == "LAUNCHING" else ReplicaState(replica.state)
    return ReplicaStatus(
        replica_id=replica.public_id,
        state=state,
        backend=Backend(replica.backend),
        message=replica.message,
        beat_at=replica.seen_at.timestamp() if replica.seen_at else 0.0,
        started_at=replica.created_at.timestamp(),
        ready_at=replica.ready_at.timestamp() if replica.ready_at else None,
        address=replica.address or None,
        metrics_address=replica.metrics_address or None,
        restarts=replica.restarts,
        exit_code=replica.exit_code,
        evidence=tuple(evidence_from_json(item) for item in replica.evidence),
    )


def evidence_to_json(evidence: Evidence) -> dict[str, object]:
    """How evidence is kept in a row."""
    return {**asdict(evidence), "kind": evidence.kind.value}


def evidence_from_json(kept: Mapping[str, object]) -> Evidence:
    """What `evidence_to_json` wrote."""
    line, at = kept.get("line"), kept.get("at")
    return Evidence(
        kind=EvidenceKind(str(kept["kind"])),
        text=str(kept.get("text", "")),
        line=line if isinstance(line, int) else None,
        at=float(at) if isinstance(at, (int, float)) else 0.0,
    )


def read_logs(
    replica: Replica, *, after: int | None = None, before: int | None = None, limit: int = 500
) -> list[LogLine]:
    """Lines of the replica's service log; see `serving.runtime.read_logs`."""
    return _read_logs(replica.directory, after=after, before=before, limit=limit)


def last_line_number(replica: Replica) -> int:
    """The number of the newest line of the replica's service log; 0 without any."""
    return _last_line_number(replica.directory)
