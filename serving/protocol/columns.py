"""JSON tables to the columns that a column signature asks for.

Tables whose values are of the columns' own types are read here, with the result that MLflow would
have; anything else (missing columns, nulls, floats for whole numbers) gives None and goes to
MLflow's own parser, which converts it or names the error.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from serving.protocol.plan import PlannedInput
from serving.protocol.tensors import Array

NULL_LENGTH = 0xFFFFFFFF
"""The length of a missing text: MLflow lets nulls through in text columns."""

JSON_FLAG = 0x80000000
"""Added to the length of a value that is JSON: MLflow lets anything through in text columns."""

_FRAME_KINDS = {"f": "fi", "i": "i", "b": "b"}
"""NumPy's kinds of a column in a frame that pandas casts to the wanted kind without a loss."""

_WIDE = frozenset(("int64", "float64", "bool", "str"))
"""MLflow refuses other types where a list of records is the value of `inputs`."""


def columns_from_json(value: Any, field: str, inputs: Sequence[PlannedInput]) -> list[Array] | None:
    """The columns of a parsed input field, in the plan's order; None where MLflow has to look.

    Texts are packed.
    """
    names = [str(planned.key) for planned in inputs]
    if field == "dataframe_split":
        lists = _split(value, names)
    elif isinstance(value, list) and field == "inputs" and {i.dtype for i in inputs} - _WIDE:
        return None
    else:
        lists = _columns(value, field, names)
    if lists is None or len({len(items) for items in lists}) != 1 or not lists[0]:
        return None
    is_frame = field.startswith("dataframe")
    columns: list[Array] = []
    for items, planned in zip(lists, inputs, strict=True):
        column = to_column(items, planned.dtype, is_frame=is_frame)
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
        is_exact = value.keys() == set(names)  # MLflow converts unknown names too, and may fail
        if not is_exact or not all(isinstance(items, list) for items in value.values()):
            return None
        return [value[name] for name in names]
    if not isinstance(value, list):
        return None
    if not all(isinstance(row, dict) and all(name in row for name in names) for row in value):
        return None
    if field != "dataframe_records" and any(len(row) != len(names) for row in value):
        return None
    return [[row[name] for row in value] for name in names]


def to_column(items: list[Any], dtype: str, *, is_frame: bool) -> Array | None:
    """One column's values; None where MLflow has to look at them.

    Args:
        items: As JSON gave them.
        dtype: NumPy's name of the wanted type, "str" for text.
        is_frame: pandas makes a frame of the values first; else NumPy casts them as they are.
    """
    if dtype == "str":
        return pack_text(items) if all(type(item) is str for item in items) else None
    wanted = np.dtype(dtype)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            if not is_frame:
                cast = np.array(items, dtype=wanted)
                return cast if cast.ndim == 1 else None
            free = np.array(items)
            if free.ndim != 1 or free.dtype.kind not in _FRAME_KINDS[wanted.kind]:
                return None
            cast = free.astype(wanted)
    except (ValueError, TypeError, OverflowError):
        return None
    return cast if wanted.kind != "i" or np.array_equal(cast, free) else None


def pack_text(items: Sequence[Any]) -> Array:
    """N texts as bytes `[N, W]`: u32 length and UTF-8, padded to the longest.

    A missing text is None; any other value travels as JSON.
    """
    rows = [_pack_cell(item) for item in items]
    width = max(map(len, rows), default=4)
    data = b"".join([row.ljust(width, b"\0") for row in rows])
    return np.frombuffer(data, dtype=np.uint8).reshape(len(rows), width)


def _pack_cell(item: Any) -> bytes:
    if isinstance(item, str):
        data = item.encode("utf-8", "surrogatepass")
        return struct.pack("<I", len(data)) + data
    if item is None:
        return struct.pack("<I", NULL_LENGTH)
    data = json.dumps(item).encode()
    return struct.pack("<I", len(data) | JSON_FLAG) + data


def columns_from_frame(
    frame: Any, inputs: Sequence[PlannedInput]
) -> tuple[list[Array], dict[str, Any]]:
    """The columns of a DataFrame that MLflow parsed and enforced; texts are packed.

    Also gives what else the shim needs to build the same frame: "objects", the names of text
    columns that are of pandas' type for anything; by name, the values of "columns" that are not of
    their planned type (MLflow lets missing truth values through), in whose places zeros stand.
    """
    columns: list[Array] = []
    objects: list[str] = []
    others: dict[str, list[Any]] = {}
    for planned in inputs:
        name = str(planned.key)
        series = frame[name]
        items = series.tolist()
        if planned.dtype == "str" and series.dtype == object:
            objects.append(name)
            columns.append(pack_text(items))
        elif planned.dtype == "str":  # pandas' own type of texts, with one word for a missing one
            columns.append(pack_text([x if isinstance(x, str) else None for x in items]))
        elif series.dtype == np.dtype(planned.dtype):
            columns.append(np.ascontiguousarray(series.to_numpy()))
        else:
            others[name] = [x.item() if isinstance(x, np.generic) else x for x in items]
            columns.append(np.zeros(len(items), dtype=planned.dtype))
    extras = {"objects": objects, "columns": others}
    return columns, {key: extra for key, extra in extras.items() if extra}


def index_of(frame: Any) -> dict[str, Any]:
    """The index of a frame from CSV as an extra, where it is not just the rows' numbers.

    pandas takes the first values of rows that are longer than the header for their labels.
    """
    index = frame.index
    if type(index).__name__ == "RangeIndex":
        return {}
    labels = index.tolist()
    return {"index": [list(x) for x in zip(*labels, strict=True)] if index.nlevels > 1 else labels}
