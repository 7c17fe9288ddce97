"""What a form or an API call asks for, once read; `services` checks it against the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityInput:
    """A served entity as asked for; None means "not said".

    An update replaces the whole config, so what is not said becomes the default, but for two that
    typed clients cannot send: `throughput_optimized` and `batching` then stay as they were for the
    entity of the same name, else of the same model.

    Attributes:
        entity_version: A version number, or "@alias", which is resolved now.
        workload_size: Small, Medium, Large; None with both concurrencies means Custom.
        environment_vars: Plain values or `{{secrets/scope/key}}`.
        traffic_percentage: None: 100 for a single entity.
    """

    entity_name: str
    entity_version: str
    name: str | None = None
    workload_type: str | None = None
    workload_size: str | None = None
    min_provisioned_concurrency: int | None = None
    max_provisioned_concurrency: int | None = None
    scale_to_zero_enabled: bool | None = None
    throughput_optimized: bool | None = None
    environment_vars: Mapping[str, str] | None = None
    batching: Mapping[str, object] | None = None
    traffic_percentage: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointInput:
    """A whole endpoint as asked for on creation."""

    name: str
    entities: tuple[EntityInput, ...]
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    email_notifications: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rate_limits: Sequence[Mapping[str, Any]] = ()
    ai_gateway: Mapping[str, Any] = field(default_factory=dict)
