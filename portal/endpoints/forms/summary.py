"""The side of the form: what will run, the same as an API call, and what an edit changes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portal.endpoints.forms.batching import BATCHING_KEYS
from portal.endpoints.forms.choices import EntityChoices, concurrency_of, replicas_of
from portal.endpoints.forms.fields import CUSTOM, EndpointFields, EntityFields, Row
from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.services import default_name
from serving.workloads import WORKLOAD_TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class WillRun:
    """One served entity in words."""

    name: str
    what: str
    replicas: str
    backend: str
    backend_note: str
    concurrency: str
    traffic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference of an edit; empty `old` or `new` where there is nothing.

    Attributes:
        where: The served entity's name, empty for the endpoint itself.
    """

    where: str
    field: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything at the form's side.

    Attributes:
        changes: None on creation.
        api_json: The body of the equivalent API call.
        curl: That call as a command; the token comes from the environment.
    """

    entities: tuple[WillRun, ...]
    method: str
    path: str
    api_json: str
    curl: str
    changes: tuple[Change, ...] | None

    @property
    def needs_deployment(self) -> bool:
        return self.changes is None or needs_deployment(self.changes)


def summarize(
    fields: EndpointFields,
    wanted: EndpointInput,
    choices: Sequence[EntityChoices],
    *,
    base_url: str,
    before: EndpointFields | None,
) -> Summary:
    """The form's side; `before` is what an edit started from, None on creation."""
    if before is None:
        method, path, body = "POST", "/api/2.0/serving-endpoints", create_body(wanted)
    else:
        method = "PUT"
        path = f"/api/2.0/serving-endpoints/{before.name}/config"
        body = config_body(wanted.entities, is_update=True)
    api_json = json.dumps(body, indent=2, ensure_ascii=False)
    return Summary(
        entities=tuple(_will_run(c, many=len(choices) > 1) for c in choices),
        method=method,
        path=path,
        api_json=api_json,
        curl=api_curl(method, base_url + path, body),
        changes=None if before is None else changes(before, fields),
    )


def _will_run(choices: EntityChoices, *, many: bool) -> WillRun:
    fields = choices.fields
    is_triton = fields.throughput_optimized and choices.offers_throughput
    least, most = concurrency_of(fields)
    kind = WORKLOAD_TYPES.get(fields.workload_type)
    device = kind.label if kind else fields.workload_type
    model = (
        f"{fields.model} {_version_word(fields.version)}" if fields.model else "Nothing picked yet"
    )
    note = ""
    if is_triton and choices.eligibility.may_become:
        note = "The version is still being staged: the deployment waits for it."
    elif is_triton:
        note = "Concurrent requests are batched. Decided anew at each deployment."
    return WillRun(
        name=fields.name or fields.default_name or f"Served entity {fields.index + 1}",
        what=f"{model} on {device}" + (", emulated on the CPU" if choices.is_emulated else ""),
        replicas=_replicas(fields),
        backend=_backend(choices, is_triton=is_triton),
        backend_note=note,
        concurrency=_range(least, most) if 0 < most >= least else "",
        traffic=f"{fields.traffic or '0'} %" if many else "",
    )


def _backend(choices: EntityChoices, *, is_triton: bool) -> str:
    if choices.version is not None and choices.version.entrypoint:
        return "The model's own server"
    return "Triton, throughput optimized" if is_triton else "Standard backend"


def _replicas(fields: EntityFields) -> str:
    least, most = replicas_of(fields)
    if not most:
        return "–"
    words = f"{_range(least, most)} {'replica' if most == 1 else 'replicas'}"
    return f"{words}, none while idle" if fields.scale_to_zero else words


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _version_word(version: str) -> str:
    if not version:
        return "(no version)"
    return version if version.startswith("@") else f"version {version}"


def create_body(wanted: EndpointInput) -> dict[str, Any]:
    """The body of `POST /api/2.0/serving-endpoints`."""
    body: dict[str, Any] = {"name": wanted.name, "config": config_body(wanted.entities)}
    if wanted.description:
        body["description"] = wanted.description
    if wanted.tags:
        body["tags"] = [{"key": key, "value": value} for key, value in wanted.tags.items()]
    return body


def config_body(entities: Sequence[EntityInput], *, is_update: bool = False) -> dict[str, Any]:
    """The body of `PUT /api/2.0/serving-endpoints/{name}/config`.

    In an update batching that is not said stays as it was, so that none is said too.
    """
    is_routed = len(entities) > 1
    body: dict[str, Any] = {
        "served_entities": [
            _entity_body(entity, _entity_name(entity) if is_routed else entity.name)
            for entity in entities
        ]
    }
    if is_update:
        for said, entity in zip(body["served_entities"], entities, strict=True):
            said["batching"] = dict(entity.batching or {})
    if is_routed:
        body["traffic_config"] = {
            "routes": [
                {
                    "served_entity_name": _entity_name(entity),
                    "traffic_percentage": entity.traffic_percentage or 0,
                }
                for entity in entities
            ]
        }
    return body


def _entity_name(entity: EntityInput) -> str:
    """The name by which a route calls the entity; an alias has no number yet, so it is named."""
    if entity.name:
        return entity.name
    return default_name(entity.entity_name, entity.entity_version.removeprefix("@"))


def _entity_body(entity: EntityInput, name: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": name,
        "entity_name": entity.entity_name,
        "entity_version": entity.entity_version,
        "workload_type": entity.workload_type,
        "workload_size": entity.workload_size,
        "min_provisioned_concurrency": entity.min_provisioned_concurrency,
        "max_provisioned_concurrency": entity.max_provisioned_concurrency,
        "scale_to_zero_enabled": bool(entity.scale_to_zero_enabled),
        "throughput_optimized": bool(entity.throughput_optimized),
        "environment_vars": dict(entity.environment_vars or {}) or None,
        "batching": dict(entity.batching or {}) or None,
    }
    return {key: value for key, value in body.items() if value is not None}


def api_curl(method: str, url: str, body: Mapping[str, Any]) -> str:
    """The call as a command; the token comes from the environment."""
    return (
        f"curl -X {method} {shlex.quote(url)} \\\n"
        '  -H "Authorization: Bearer $DATABRICKS_TOKEN" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(json.dumps(body, indent=2, ensure_ascii=False))}"
    )


# ---------------------------------------------------------------- what an edit changes


def changes(before: EndpointFields, after: EndpointFields) -> tuple[Change, ...]:
    """Each field that differs, served entities matched by the name they had."""
    found: list[Change] = []
    old_by_name = {entity.was_named: entity for entity in before.entities}
    kept = set()
    for entity in after.entities:
        label = entity.name or entity.default_name or f"Served entity {entity.index + 1}"
        old = old_by_name.get(entity.was_named)
        if old is None:
            found.append(Change(where=label, field="Served entity", old="", new="added"))
            continue
        kept.add(old.was_named)
        found += _differences(old.was_named, _values(old), _values(entity))
    found += [
        Change(where=name, field="Served entity", old="served", new="removed")
        for name in old_by_name
        if name not in kept
    ]
    found += _differences("", _endpoint_values(before), _endpoint_values(after))
    return tuple(found)


def needs_deployment(found: Sequence[Change]) -> bool:
    """Whether a config rolls out: also when nothing differs, for the backend is decided anew."""
    return not found or any(change.where for change in found)


def _differences(where: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    keys = [*old, *(key for key in new if key not in old)]
    return [
        Change(where=where, field=key, old=old.get(key, ""), new=new.get(key, ""))
        for key in keys
        if old.get(key, "") != new.get(key, "")
    ]


def _values(fields: EntityFields) -> dict[str, str]:
    """A served entity's settings, as the diff shows them."""
    size = fields.scale_out
    if size == CUSTOM:
        size = f"Custom, {fields.min_concurrency} to {fields.max_concurrency}"
    values = {
        "Entity": fields.model,
        "Version": fields.version,
        "Compute type": fields.workload_type,
        "Throughput optimized": "on" if fields.throughput_optimized else "off",
        "Compute scale-out": size,
        "Scale to zero": "on" if fields.scale_to_zero else "off",
        "Name": fields.name or fields.default_name,
        "Traffic": f"{fields.traffic or '100'} %",
    }
    values |= {
        f"Batching {key}": fields.batching.get(key, "") or "automatic" for key in BATCHING_KEYS
    }
    return values | _row_values("Variable", fields.environment)


def _endpoint_values(fields: EndpointFields) -> dict[str, str]:
    return {"Description": fields.description} | _row_values("Tag", fields.tags)


def _row_values(noun: str, rows: Sequence[Row]) -> dict[str, str]:
    return {f"{noun} {row.name}": row.value or "(empty)" for row in rows if row.name}
