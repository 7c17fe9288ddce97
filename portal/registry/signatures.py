"""A model's signature as rows of a table: part, name, type, shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PARTS = (("inputs", "Input"), ("outputs", "Output"), ("params", "Parameter"))
MAX_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureRow:
    """One tensor, column or parameter; `shape` is empty for a plain column."""

    part: str
    name: str
    dtype: str
    shape: str
    note: str = ""


def signature_rows(signature: Mapping[str, Any] | None) -> list[SignatureRow]:
    """MLflow's `ModelSignature.to_dict()` (its values are JSON texts) as rows, the first 200.

    What cannot be read is left out: the page shows what there is, the deploy judges.
    """
    rows: list[SignatureRow] = []
    for key, part in PARTS:
        for item in _items((signature or {}).get(key)):
            rows.append(_row(part, item))
    return rows[:MAX_ROWS]


def _items(text: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(text, str):
        try:
            text = json.loads(text)
        except ValueError:
            return
    if isinstance(text, list):
        yield from (item for item in text if isinstance(item, Mapping))


def _row(part: str, item: Mapping[str, Any]) -> SignatureRow:
    name = str(item.get("name") or "")
    spec = item.get("tensor-spec")
    if isinstance(spec, Mapping):
        return SignatureRow(
            part=part, name=name, dtype=str(spec.get("dtype")), shape=_shape(spec.get("shape"))
        )
    if part == "Parameter":
        default = json.dumps(item.get("default"), ensure_ascii=False)
        shape = _shape(item.get("shape")) if item.get("shape") else ""
        return SignatureRow(
            part=part,
            name=name,
            dtype=str(item.get("type")),
            shape=shape,
            note=f"default {default[:120]}",
        )
    note = "" if item.get("required", True) else "optional"
    return SignatureRow(part=part, name=name, dtype=_type_text(item), shape="", note=note)


def _shape(shape: object) -> str:
    if not isinstance(shape, list):
        return ""
    return "(" + ", ".join("any" if size == -1 else str(size) for size in shape) + ")"


def _type_text(item: Mapping[str, Any], depth: int = 0) -> str:
    """A column's type in words: `double`, `list of string`, `object {a: double}`."""
    kind = str(item.get("type", "any"))
    if depth > 4:
        return "..."
    if kind == "array" and isinstance(item.get("items"), Mapping):
        return f"list of {_type_text(item['items'], depth + 1)}"
    if kind == "map" and isinstance(item.get("values"), Mapping):
        return f"map to {_type_text(item['values'], depth + 1)}"
    properties = item.get("properties")
    if kind == "object" and isinstance(properties, Mapping):
        inner = (
            f"{name}: {_type_text(value, depth + 1)}"
            for name, value in properties.items()
            if isinstance(value, Mapping)
        )
        return "object {" + ", ".join(inner) + "}"
    return kind
