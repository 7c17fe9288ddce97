"""From the form's text to what `services` takes, and from its refusals back to the fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from portal.endpoints.forms.batching import BATCHING_KEYS, read_batching
from portal.endpoints.forms.batching import LABELS as BATCHING_LABELS
from portal.endpoints.forms.fields import CUSTOM, EndpointFields, EntityFields, Row
from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.models import Endpoint
from portal.endpoints.services import name_problem
from portal.rest import ApiError

FIELDS = {
    "entity_name": "model",
    "entity_version": "version",
    "workload_type": "workload_type",
    "throughput_optimized": "throughput_optimized",
    "workload_size": "scale_out",
    "min_provisioned_concurrency": "min_concurrency",
    "max_provisioned_concurrency": "max_concurrency",
    "scale_to_zero_enabled": "scale_to_zero",
    "name": "name",
    "traffic_percentage": "traffic",
    "environment_vars": "environment",
    **{key: key for key in BATCHING_KEYS},
    "batching": "max_batch_size",
}
"""The API's words to the form's."""


@dataclass(slots=True)
class Errors:
    """What is wrong, by field id; what belongs to no field is in `general`."""

    by_field: dict[str, str] = field(default_factory=dict)
    general: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.by_field or self.general)

    def add(self, field_id: str, message: str) -> None:
        """Put a message at a field; the first one stays."""
        self.by_field.setdefault(field_id, message)

    def add_all(self, others: Errors) -> None:
        """Add what stands at fields that have no message yet."""
        self.by_field = others.by_field | self.by_field
        self.general += others.general


def parse(fields: EndpointFields) -> tuple[EndpointInput, Errors]:
    """Read the form's numbers and rows; the rules of endpoints are left to `services`."""
    errors = Errors()
    if not fields.name:
        errors.add("name", "Give the endpoint a name.")
    is_only = len(fields.entities) == 1
    entities = tuple(_parse_entity(e, errors, is_only=is_only) for e in fields.entities)
    tags: dict[str, str] = {}
    for i, row in enumerate(fields.tags):
        if _is_usable(row, f"tag-{i}-name", tags, errors, "tag", "key"):
            tags[row.name] = row.value.strip()
    wanted = EndpointInput(
        name=fields.name, entities=entities, description=fields.description, tags=tags
    )
    return wanted, errors


def _parse_entity(fields: EntityFields, errors: Errors, *, is_only: bool) -> EntityInput:
    at = fields.prefix
    if not fields.model:
        errors.add(f"{at}-model", "Pick a model.")
    elif not fields.version:
        errors.add(f"{at}-version", "Pick a version.")
    is_custom = fields.scale_out == CUSTOM
    variables: dict[str, str] = {}
    for i, row in enumerate(fields.environment):
        field_id = f"{at}-env-{i}-name"
        if _is_usable(row, field_id, variables, errors, "variable", "name"):
            variables[row.name] = row.value
    number = _Numbers(at, errors)
    batching, problems = read_batching(fields.batching)
    if fields.throughput_optimized:  # else its fields are not in sight
        for key, message in problems.items():
            errors.add(f"{at}-{key}", message)
    return EntityInput(
        entity_name=fields.model,
        entity_version=fields.version,
        name=fields.name or None,
        workload_type=fields.workload_type,
        throughput_optimized=fields.throughput_optimized,
        workload_size=None if is_custom else fields.scale_out,
        min_provisioned_concurrency=(
            number("min_concurrency", fields.min_concurrency) if is_custom else None
        ),
        max_provisioned_concurrency=(
            number("max_concurrency", fields.max_concurrency) if is_custom else None
        ),
        scale_to_zero_enabled=fields.scale_to_zero,
        environment_vars=variables,
        batching=batching,
        traffic_percentage=100 if is_only else number("traffic", fields.traffic),
    )


def problem_with_name(name: str) -> str:
    """What is wrong with a new endpoint's name, known before it is sent; empty when nothing is."""
    if problem := name_problem(name):
        return problem
    if Endpoint.objects.filter(name=name).exists():
        return f"There is an endpoint {name} already. Choose another name."
    return ""


class _Numbers:
    """Reads whole numbers and notes those that are none."""

    def __init__(self, prefix: str, errors: Errors) -> None:
        self.prefix = prefix
        self.errors = errors

    def __call__(self, name: str, text: str) -> int | None:
        if re.fullmatch(r"[0-9]{1,9}", text):
            return int(text)
        self.errors.add(f"{self.prefix}-{name}", "Give a whole number, such as 8.")
        return None


def _is_usable(
    row: Row, field_id: str, seen: Mapping[str, str], errors: Errors, noun: str, part: str
) -> bool:
    """Whether a row counts: empty ones do not, half-filled and doubled ones are errors."""
    if row.is_empty:
        return False
    if not row.name:
        errors.add(field_id, f"Give this {noun} a {part}, or remove the row.")
        return False
    if row.name in seen:
        errors.add(field_id, f"There is already a {noun} {row.name}. Remove one of the two.")
        return False
    return True


def place(error: ApiError, fields: EndpointFields) -> Errors:
    """A refusal of `services`, each message at the field that it is about."""
    errors = Errors()
    for detail in error.details:
        path, message = str(detail.get("field", "")), str(detail.get("message", ""))
        field_id = field_of(path, fields)
        if field_id and message:
            errors.add(field_id, message)
        elif message:
            errors.general.append(message)
    if not errors:
        errors.general.append(error.message)
    return errors


def field_of(path: str, fields: EndpointFields) -> str:
    """The form's field for the API's `config.served_entities[0].name`; empty without one."""
    if path in {"name", "description"}:
        return path
    if match := re.fullmatch(r"tags\[(\d+)\].*", path):
        return _row_of(fields.tags, "tag", int(match[1]))
    if match := re.fullmatch(r"tags\.(.+)", path):
        return _named_row(fields.tags, "tag", match[1])
    if match := re.fullmatch(r"(?:config\.)?served_(?:entities|models)\[(\d+)\]\.?(.*)", path):
        return _entity_field(fields.entities, int(match[1]), match[2])
    if match := re.fullmatch(r"(?:config\.)?traffic_config(?:\.routes\[(\d+)\].*)?.*", path):
        index = int(match[1] or 0)
        return f"entity-{index}-traffic" if len(fields.entities) > 1 else ""
    return ""


def _entity_field(entities: Sequence[EntityFields], index: int, path: str) -> str:
    if index >= len(entities):
        return ""
    entity = entities[index]
    head, _, rest = path.replace("[", ".").replace("]", "").partition(".")
    if head == "environment_vars":
        if not entity.environment:
            return f"{entity.prefix}-environment"
        return _named_row(entity.environment, f"{entity.prefix}-env", rest)
    if head == "batching" and rest in FIELDS:
        head = rest
    return f"{entity.prefix}-{FIELDS.get(head, 'model')}"


def _row_of(rows: Sequence[Row], prefix: str, place_of: int) -> str:
    """The field of the n-th row that is not empty."""
    filled = [i for i, row in enumerate(rows) if not row.is_empty]
    return f"{prefix}-{filled[place_of]}-name" if place_of < len(filled) else f"{prefix}-0-name"


def _named_row(rows: Sequence[Row], prefix: str, name: str) -> str:
    """The field of the row of this name, else of the first row."""
    named = (i for i, row in enumerate(rows) if row.name == name)
    return f"{prefix}-{next(named, 0)}-name"


def labels(fields: EndpointFields) -> Mapping[str, str]:
    """What the error summary calls each field."""
    found: dict[str, str] = {"name": "Name", "description": "Description"}
    for i, _ in enumerate(fields.tags):
        found[f"tag-{i}-name"] = f"Tag {i + 1}"
    words: dict[str, Any] = {
        "model": "Entity",
        "version": "Version",
        "workload_type": "Compute type",
        "throughput_optimized": "Throughput optimized",
        "scale_out": "Compute scale-out",
        "min_concurrency": "Least concurrency",
        "max_concurrency": "Most concurrency",
        "scale_to_zero": "Scale to zero",
        "name": "Served entity name",
        "traffic": "Traffic %",
        "environment": "Environment variables",
        **BATCHING_LABELS,
    }
    many = len(fields.entities) > 1
    for entity in fields.entities:
        tail = f" (served entity {entity.index + 1})" if many else ""
        for name, label in words.items():
            found[f"{entity.prefix}-{name}"] = label + tail
        for i, row in enumerate(entity.environment):
            found[f"{entity.prefix}-env-{i}-name"] = f"Variable {row.name or i + 1}{tail}"
    return found
