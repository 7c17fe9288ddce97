"""The plain typed values that are handed into the engine and out of it.

All are frozen. Those that cross a process border (a replica's spec file, Redis) go through
`to_json` and `from_json`, which keep every field and refuse unknown ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Backend(StrEnum):
    """What runs the model inside a replica."""

    TRITON = "TRITON"
    STANDARD = "STANDARD"
    ENTRYPOINT = "ENTRYPOINT"  # a server that the model brings


class DeviceKind(StrEnum):
    """Where a replica computes."""

    CPU = "cpu"
    CPU_EMULATION = "cpu-emulation"  # a GPU workload type on a machine without a GPU
    CUDA = "cuda"


class ReplicaState(StrEnum):
    """What a replica says of itself."""

    STARTING = "STARTING"
    READY = "READY"
    DRAINING = "DRAINING"
    STOPPED = "STOPPED"
    CRASHED = "CRASHED"


class EvidenceKind(StrEnum):
    """The facts that prove that Triton is attached; all must be seen for "Triton active"."""

    SERVER_VERSION = "SERVER_VERSION"  # the server's own answer to GET /v2
    MODEL_LOADED = "MODEL_LOADED"  # the log line "successfully loaded 'model'"
    MODEL_READY_ROW = "MODEL_READY_ROW"  # the row "| model | 1 | READY |" of the model table
    HTTP_SERVICE = "HTTP_SERVICE"  # the log line "Started HTTPService at ..."
    MODEL_READY = "MODEL_READY"  # the server's own answer to GET /v2/models/model/ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The devices given to one replica; `indices` are CUDA device numbers, empty on a CPU."""

    kind: DeviceKind
    indices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Dynamic batching in force for one served entity, in Triton's own terms.

    `sources` tells for each field where its value came from ("default", "profile", "override").
    """

    max_batch_size: int = 32  # rows
    max_queue_delay_microseconds: int = 0
    preferred_batch_size: tuple[int, ...] = ()
    instance_count: int = 1
    max_queue_size: int = 256  # requests at a replica, kept by the gateway
    threads_per_instance: int = 1
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonEnvironment:
    """An unpacked, relocated and verified model environment.

    Attributes:
        directory: The environment's prefix; `directory/bin/python` runs it.
        python_version: "3.11", the minor version.
        base_prefix: Prefix of the interpreter that carries the standard library.
        libpython: The shared library that Triton's stub needs, None for a static interpreter.
    """

    directory: Path
    python_version: str
    base_prefix: Path
    libpython: Path | None

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.directory / "bin" / "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """Everything one replica needs to run; all but secrets stands in `directory/spec.json`.

    Attributes:
        replica_id: Five letters or digits, shown as `[ts/<replica_id>]`.
        directory: The replica's own folder: spec, status, logs, model repository.
        model_directory: The unpacked MLflow model (holds `MLmodel`).
        signature: MLflow's `ModelSignature.to_dict()`, None without a signature.
        environment_variables: For the model's process; secrets already resolved.
        secret_names: Which of these variables hold a secret: masked in the log.
        max_in_flight: Requests that the gateway may have at this replica at once.
        start_deadline_s: From start to READY, else the replica fails.
        request_timeout_s: As long as callers wait for an answer.
        entrypoint: The command of a model that brings its own server.
    """

    replica_id: str
    directory: Path
    endpoint_id: str
    endpoint_name: str
    served_entity_name: str
    config_version: int
    backend: Backend
    model_directory: Path
    environment: PythonEnvironment
    signature: Mapping[str, Any] | None
    environment_variables: Mapping[str, str]
    device: Device
    batching: Batching
    max_in_flight: int
    redis_url: str
    host: str = "127.0.0.1"
    start_deadline_s: float = 600.0
    drain_deadline_s: float = 60.0
    request_timeout_s: float = 60.0
    entrypoint: str = ""
    triton_home: Path | None = None
    secret_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One fact that shows what runs in a replica; `line` is its number in the replica's log."""

    kind: EvidenceKind
    text: str
    line: int | None
    at: float  # seconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """How many calls of the model had so many rows."""

    rows: int
    executions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingSpan:
    """What Triton batched within some seconds.

    Attributes:
        requests: As Triton counts them. The gateway joins small requests of concurrent callers
            before Triton sees them, so these are not the callers'; rows and executions are right.
        rows: Rows that the model was given.
        executions: Calls of the model.
        queue_ms: Waited in Triton's queue, summed over `requests`.
        compute_ms: Spent in the model, summed over `executions`.
        sizes: Executions by their rows, smallest first.
    """

    seconds: float
    requests: int = 0
    rows: int = 0
    executions: int = 0
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    sizes: tuple[BatchSize, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingSeen:
    """Realised batching: about the last minute, and all since the server's start."""

    recent: BatchingSpan
    total: BatchingSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """How busy and how full one of a replica's GPUs is; another replica may share it."""

    index: int
    busy_percent: float
    memory_bytes: int
    memory_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a replica's processes use of what they may use on their node."""

    cpu_percent: float
    memory_bytes: int
    memory_percent: float
    gpus: tuple[GpuUsage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """What a replica publishes about itself, every 2 s and at each change.

    Attributes:
        address: `host:port` of the HTTP server, None before it listens.
        metrics_address: `host:port` of Triton's Prometheus metrics; None on the standard backend.
        supervisor_pid: The process to signal.
        restarts: How often the server was started again after an unexpected end.
        message: One sentence: what it waits for, or what went wrong.
        beat_at: When this was published, seconds since 1970.
        batching_seen: What Triton batched; None on the standard backend and before it is known.
        usage: Of its node while it serves, measured every few seconds.
    """

    replica_id: str
    state: ReplicaState
    backend: Backend
    message: str
    beat_at: float
    started_at: float
    ready_at: float | None = None
    address: str | None = None
    metrics_address: str | None = None
    supervisor_pid: int = 0
    server_pid: int | None = None
    restarts: int = 0
    exit_code: int | None = None
    evidence: tuple[Evidence, ...] = ()
    batching_seen: BatchingSeen | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a replica's service log.

    Attributes:
        number: Counts from 1 for the replica's life; never reused.
        at: Seconds since 1970, when the supervisor read it.
        source: "server" for the server's own output, "shoal" for the supervisor's words.
        text: As the server wrote it, without prefix and newline.
    """

    number: int
    at: float
    source: str
    text: str


# ---------------------------------------------------------------- what the gateway reads


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteReplica:
    """A replica that takes requests."""

    replica_id: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEntity:
    """A served entity as the gateway needs it."""

    name: str
    entity_name: str
    entity_version: str
    traffic_percentage: int
    backend: Backend
    signature: Mapping[str, Any] | None
    max_batch_size: int
    max_in_flight: int  # requests that are admitted for each replica
    replicas: tuple[RouteReplica, ...]
    instance_count: int = 1  # copies of the model in each replica


class LimitKey(StrEnum):
    """Whose calls a rate limit counts together."""

    ENDPOINT = "endpoint"  # everybody's
    USER = "user"  # each user's, or those of the named one
    SERVICE_PRINCIPAL = "service_principal"  # those of the named one
    USER_GROUP = "user_group"  # those of all members of the named group


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """At most `calls` a minute; `principal` is a user's or a group's name, empty for "each"."""

    key: LimitKey
    calls: int
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An endpoint as the gateway needs it.

    Attributes:
        message: Why there is nothing to answer, when `entities` has no replica.
        user_levels: User id to permission level ("CAN_VIEW", "CAN_QUERY", "CAN_MANAGE").
        group_levels: Group name to permission level.
        rate_limits: All that apply; see `serving.gateway.limiting` for how they work together.
    """

    endpoint_id: str
    endpoint_name: str
    message: str
    is_stopped: bool
    request_timeout_s: float
    entities: tuple[RouteEntity, ...]
    user_levels: Mapping[str, str]
    group_levels: Mapping[str, str]
    rate_limits: tuple[RateLimit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who a token stands for."""

    user_id: str
    user_name: str
    is_admin: bool
    groups: tuple[str, ...]
    expires_at: float | None  # seconds since 1970


# ---------------------------------------------------------------- JSON


def to_json(value: object) -> str:
    """Write one of this module's dataclasses as JSON text."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"to_json takes a value of serving.spec, not {type(value).__name__}.")
    return json.dumps(asdict(value), default=str, separators=(",", ":"))


def from_json(kind: type[T], text: str | bytes) -> T:
    """Read what `to_json` wrote.

    Raises:
        ValueError: The text is not JSON, or a field is unknown or missing.
    """
    built: T = _build(kind, json.loads(text))
    return built


def _build(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        if value is None:
            return None
        return _build(next(k for k in get_args(kind) if k is not NoneType), value)
    if origin is tuple:
        return tuple(_build(get_args(kind)[0], item) for item in value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        unknown = set(value) - {f.name for f in fields(kind)}
        if unknown:
            raise ValueError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}.")
        try:
            return kind(**{name: _build(hints[name], item) for name, item in value.items()})
        except TypeError as exc:
            raise ValueError(str(exc)) from exc
    if kind is Path or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        return kind(value)
    return value
