"""JSON tables to the columns that a column signature asks for.

Well-formed tables of the four input fields are read here; anything else (missing columns, nulls,
numbers as text) gives None and goes to MLflow's own parser, which converts it or names the error.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from serving.protocol.plan import PlannedInput
from serving.protocol.tensors import Array, is_lossless

NULL_LENGTH = 0xFFFFFFFF
"""The length of a missing text: MLflow lets nulls through in text columns."""

Column = Array | list[str | None]


def columns_from_json(
    value: Any, field: str, inputs: Sequence[PlannedInput]
) -> list[Column] | None:
    """The columns of a parsed input field, in the plan's order."""
    names = [str(planned.key) for planned in inputs]
    lists = _split(value, names) if field == "dataframe_split" else _columns(value, field, names)
    if lists is None or len({len(items) for items in lists}) != 1:
        return None
    columns: list[Column] = []
    for items, planned in zip(lists, inputs, strict=True):
        column = to_column(items, planned.dtype)
        if column is None:
            return None
        columns.append(column)
    return columns


def _split(value: Any, names: list[str]) -> list[list[Any]] | None:
    if not isinstance(value, dict) or not value.keys() <= {"columns", "data", "index"}:
        return None
    columns, data = value.get("columns"), value.get("data")
    if not isinstance(columns, list) or not isinstance(data, list):
        return None
    if not all(isinstance(name, str) for name in columns) or len(set(columns)) != len(columns):
        return None
    if not all(isinstance(row, list) and len(row) == len(columns) for row in data):
        return None
    if not all(name in columns for name in names):
        return None
    positions = [columns.index(name) for name in names]
    return [[row[position] for row in data] for position in positions]


def _columns(value: Any, field: str, names: list[str]) -> list[list[Any]] | None:
    if isinstance(value, dict) and field == "inputs":
        if not all(isinstance(value.get(name), list) for name in names):
            return None
        return [value[name] for name in names]
    if not isinstance(value, list):
        return None
    if not all(isinstance(row, dict) and all(name in row for name in names) for row in value):
        return None
    return [[row[name] for row in value] for name in names]


def to_column(items: list[Any], dtype: str) -> Column | None:
    """One column's values; None where one is of another kind or a cast would lose something."""
    if dtype == "str":
        return items if all(type(item) is str for item in items) else None
    try:
        free = np.array(items)
    except ValueError:
        return None
    wanted = np.dtype(dtype)
    kinds = {"f": "fiu", "i": "iuf", "b": "b"}[wanted.kind]
    if free.ndim != 1 or (free.dtype.kind not in kinds and free.size):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        cast = free.astype(wanted)
    return cast if wanted.kind == "f" or is_lossless(items, cast) else None


def pack_text(items: Sequence[str | None]) -> Array:
    """N texts as bytes `[N, W]`: u32 length and UTF-8, padded to the longest.

    Raises:
        UnicodeEncodeError: A text holds half of a surrogate pair.
    """
    encoded = [None if item is None else item.encode("utf-8") for item in items]
    width = 4 + max((len(data) for data in encoded if data is not None), default=0)
    rows = [
        (
            struct.pack("<I", NULL_LENGTH) if data is None else struct.pack("<I", len(data)) + data
        ).ljust(wide, b"\0")
        for data, wide in zip(encoded, repeat(width))
    ]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), width)


def columns_from_frame(frame: Mapping[Any, Any], inputs: Sequence[PlannedInput]) -> list[Column]:
    """The columns of a DataFrame that MLflow parsed and enforced.

    Raises:
        ValueError: A text column holds something that is neither text nor missing.
    """
    columns: list[Column] = []
    for planned in inputs:
        series = frame[planned.key]
        if planned.dtype == "str":
            columns.append([_text(item, str(planned.key)) for item in series.tolist()])
        else:
            columns.append(np.ascontiguousarray(series.to_numpy(), dtype=planned.dtype))
    return columns


def _text(item: Any, name: str) -> str | None:
    if isinstance(item, str):
        return item
    if item is None or (isinstance(item, float) and item != item):
        return None
    raise ValueError(f"Column '{name}' holds {type(item).__name__} values; expected string.")
