"""Hypothesis strategies: signatures of every kind, requests that fit them, and broken ones."""

from __future__ import annotations

import base64
import copy
import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
from mlflow.types.schema import AnyType, Array, Map, Object, Property

from serving.protocol.plan import DATATYPES

FIELDS = ("inputs", "instances", "dataframe_split", "dataframe_records")

texts = st.text(st.characters(exclude_characters="\0"), max_size=6)
plain_texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
small = st.integers(-100, 100)
floats = st.floats(-1e4, 1e4, width=16)
oddities = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        -1,
        1.5,
        300,
        2**31,
        2**53 + 1,
        2**63,
        2**64,
        -(2**63) - 1,
        1e400,
        -1e39,
        float("nan"),
        "",
        "7",
        "1.5",
        "x",
        "2024-01-02",
        [],
        {},
        [1],
        [[2]],
        {"a": 1},
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | small | floats | plain_texts,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)


@dataclass(frozen=True, slots=True)
class Request:
    """A signature and a body for it."""

    inputs: Schema | None
    params: ParamSchema | None
    raw: bytes
    content_type: str = "application/json"


def json_bytes(body: object) -> bytes:
    """As a client writes it; bare NaN and Infinity as Python's `json` does."""
    return json.dumps(body).encode()


# ---------------------------------------------------------------- tensors

elements: dict[str, st.SearchStrategy[Any]] = {
    "f": floats | small,
    "i": st.integers(-128, 127),
    "u": st.integers(0, 255),
    "b": st.booleans(),
    "U": texts,
    "O": anything,
}


@st.composite
def nested(draw: st.DrawFn, kind: str, shape: Sequence[int]) -> Any:
    """Nested lists of a shape."""
    if not shape:
        return draw(elements[kind])
    return [draw(nested(kind, shape[1:])) for _ in range(shape[0])]


@st.composite
def tensor_requests(draw: st.DrawFn) -> tuple[Schema, Any, str]:
    """A signature of tensors, a value for one of the fields, and the field."""
    dtypes = draw(st.lists(st.sampled_from([*DATATYPES, "str", "object"]), min_size=1, max_size=3))
    is_named = len(dtypes) > 1 or draw(st.booleans())
    rows = draw(st.integers(1, 3))
    has_open_rows = draw(st.integers(0, 9)) > 0
    specs, values = [], {}
    for position, dtype in enumerate(dtypes):
        dims = draw(st.lists(st.integers(1, 3), max_size=2))
        wild = [-1 if draw(st.booleans()) else length for length in dims]
        name = f"x{position}" if is_named else None
        shape = (-1 if has_open_rows else rows, *wild)
        specs.append(TensorSpec(np.dtype(dtype), shape, name))
        values[name] = draw(nested(np.dtype(dtype).kind, [rows, *dims]))
    field = draw(st.sampled_from(FIELDS))
    if not is_named:
        value = values[None]
        if field == "dataframe_records":
            value = [{"0": row} for row in value]
        elif field == "dataframe_split":
            value = {"data": [row if isinstance(row, list) else [row] for row in value]}
        return Schema(specs), value, field
    if field == "inputs":
        return Schema(specs), values, field
    return Schema(specs), _by_rows(values, rows, field), field


def _by_rows(values: dict[Any, list[Any]], rows: int, field: str) -> Any:
    records = [{name: values[name][row] for name in values} for row in range(rows)]
    if field != "dataframe_split":
        return records
    return {"columns": list(values), "data": [list(record.values()) for record in records]}


# ---------------------------------------------------------------- columns

cells: dict[DataType, st.SearchStrategy[Any]] = {
    DataType.boolean: st.booleans(),
    DataType.integer: st.integers(-(2**31), 2**31 - 1),
    DataType.long: st.integers(-(2**63), 2**63 - 1) | small,
    DataType.float: floats | small,
    DataType.double: st.floats(-1e9, 1e9) | small | st.sampled_from([0, 1]),
    DataType.string: texts,
    DataType.binary: st.binary(max_size=5).map(lambda raw: base64.encodebytes(raw).decode()),
    DataType.datetime: st.datetimes(
        min_value=datetime.datetime(1700, 1, 1),  # noqa: DTZ001 - as texts, without a zone
        max_value=datetime.datetime(2200, 1, 1),  # noqa: DTZ001 - the same
    ).map(lambda at: at.isoformat()),
}
plain_types = st.sampled_from(list(cells))
inner_types = st.recursive(
    plain_types | st.just(AnyType()),
    lambda inner: (
        inner.map(Array)
        | inner.map(Map)
        | st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=2).map(
            lambda kinds: Object(
                [
                    Property(f"p{position}", kind, required)
                    for position, (kind, required) in enumerate(kinds)
                ]
            )
        )
    ),
    max_leaves=3,
)


@st.composite
def cell(draw: st.DrawFn, kind: Any) -> Any:
    """A value of a column type."""
    if isinstance(kind, Array):
        return draw(st.lists(cell(kind.dtype), min_size=0, max_size=2))
    if isinstance(kind, Map):
        return draw(st.dictionaries(st.sampled_from("kl"), cell(kind.value_type), max_size=2))
    if isinstance(kind, Object):
        return {
            prop.name: draw(cell(prop.dtype))
            for prop in kind.properties
            if prop.required or draw(st.booleans())
        }
    return draw(anything if isinstance(kind, AnyType) else cells[kind])


@st.composite
def column_requests(draw: st.DrawFn) -> tuple[Schema, Any, str]:
    """A signature of columns, a value for one of the fields, and the field."""
    is_plain = draw(st.integers(0, 2)) > 0
    if is_plain:  # what goes the quick way
        quick = [k for k in cells if k not in (DataType.binary, DataType.datetime)]
        kinds = draw(st.lists(st.sampled_from(quick), min_size=1, max_size=4))
    else:
        kinds = draw(st.lists(plain_types | inner_types, min_size=1, max_size=3))
    is_named = draw(st.integers(0, 7)) > 0
    rows = draw(st.integers(1, 3))
    specs, values = [], {}
    for position, kind in enumerate(kinds):
        is_required = is_plain or draw(st.integers(0, 2)) > 0 or not is_named
        name = f"column {position}"
        specs.append(ColSpec(kind, name if is_named else None, is_required))
        if is_required or draw(st.booleans()):
            given = cell(kind) if is_required else cell(kind) | st.none()
            values[name] = [draw(given) for _ in range(rows)]
    names = draw(st.permutations(list(values)))
    values = {name: values[name] for name in names}
    field = draw(st.sampled_from(FIELDS))
    if field == "inputs" and draw(st.booleans()):
        return Schema(specs), values, field
    value = _by_rows(values, rows, field)
    if field == "dataframe_split" and draw(st.booleans()):
        value["index"] = draw(
            st.just(list(range(rows)))
            | st.lists(st.integers(0, 9), min_size=rows, max_size=rows)
            | st.lists(plain_texts, min_size=rows, max_size=rows)
        )
    return Schema(specs), value, field


@st.composite
def free_requests(draw: st.DrawFn) -> tuple[None, Any, str]:
    """Anything for a model without a signature."""
    field = draw(st.sampled_from(FIELDS))
    rows = draw(st.integers(1, 3))
    kind = draw(st.sampled_from("fiubUO"))
    if field.startswith("dataframe") or draw(st.booleans()):
        values = {name: draw(nested(kind, [rows])) for name in "ab"}
        return None, values if field == "inputs" else _by_rows(values, rows, field), field
    dims = draw(st.lists(st.integers(1, 3), max_size=2))
    return None, draw(nested(kind, [rows, *dims])), field


# ---------------------------------------------------------------- parameters

param_specs = [
    ParamSpec("n", "long", 3),
    ParamSpec("t", "double", 0.5),
    ParamSpec("word", "string", "w"),
    ParamSpec("flag", "boolean", False),
    ParamSpec("many", "double", [1.0], (-1,)),
]
good_params = st.fixed_dictionaries(
    {},
    optional={
        "n": small,
        "t": floats | small,
        "word": plain_texts,
        "flag": st.booleans(),
        "many": st.lists(floats, max_size=2),
        "unknown": anything,
    },
)
odd_params = (
    st.dictionaries(
        st.sampled_from(["n", "t", "word", "flag", "many", "other"]), anything | oddities
    )
    | oddities
)


# ---------------------------------------------------------------- faults


@st.composite
def broken(draw: st.DrawFn, value: Any) -> Any:
    """A value with one thing in it changed, dropped or added."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)) > 0:
        value = dict(value)
        name = draw(st.sampled_from(list(value)))
        what = draw(st.sampled_from(["inside", "inside", "inside", "drop", "add", "rename"]))
        if what == "inside":
            value[name] = draw(broken(value[name]))
        elif what == "add":
            value["extra"] = draw(oddities | st.just(copy.deepcopy(value[name])))
        else:
            moved = value.pop(name)
            if what == "rename":
                value["column 0"] = moved
        return value
    if isinstance(value, list) and value and draw(st.integers(0, 3)) > 0:
        value = list(value)
        position = draw(st.integers(0, len(value) - 1))
        what = draw(st.sampled_from(["inside", "inside", "inside", "drop", "add", "twice"]))
        if what == "inside":
            value[position] = draw(broken(value[position]))
        elif what == "drop":
            del value[position]
        else:
            value.append(draw(oddities) if what == "add" else copy.deepcopy(value[position]))
        return value
    return draw(oddities)


@st.composite
def scoring_requests(draw: st.DrawFn) -> Request:
    """A signature and a JSON request that fits it, or does not quite."""
    schema, value, field = draw(
        st.one_of(tensor_requests(), column_requests(), column_requests(), free_requests())
    )
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        value = draw(broken(value))
    if draw(st.integers(0, 15)) == 0:
        field = draw(st.sampled_from(FIELDS))
    body = {field: value}
    params = None
    if schema is not None and draw(st.booleans()):
        params = ParamSchema(
            draw(st.lists(st.sampled_from(param_specs), unique_by=lambda p: p.name))
        )
    if draw(st.integers(0, 3)) == 0:
        body["params"] = draw(good_params | odd_params)
    if draw(st.integers(0, 30)) == 0:
        body |= draw(
            st.sampled_from(
                [{"inputs": [1]}, {"client_request_id": "7"}, {"usage_context": {"a": "b"}}]
            )
        )
    return Request(schema, params, json_bytes(body))


@st.composite
def csv_requests(draw: st.DrawFn) -> Request:
    """A signature and a table as CSV, maybe with a cell or a column that does not fit."""
    kinds = draw(st.lists(plain_types, min_size=1, max_size=3))
    is_free = draw(st.integers(0, 5)) == 0
    names = [f"c{position}" for position in range(len(kinds))]
    rows = [
        [draw(cells[kind] if draw(st.integers(0, 9)) else oddities) for kind in kinds]
        for _ in range(draw(st.integers(0, 3)))
    ]
    lines = [",".join(names), *(",".join(map(_csv_cell, row)) for row in rows)]
    if draw(st.integers(0, 9)) == 0:
        lines[0] = draw(st.sampled_from(["", "c0", "c0,c0,c1,c2", "x," + lines[0]]))
    raw = "\n".join(lines).encode("utf-8", "surrogatepass")
    specs = [
        ColSpec(kind, name, required=draw(st.integers(0, 5)) > 0)
        for kind, name in zip(kinds, names, strict=True)
    ]
    return Request(None if is_free else Schema(specs), None, raw, "text/csv")


def _csv_cell(value: object) -> str:
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text


@st.composite
def raw_bodies(draw: st.DrawFn) -> Request:
    """Bytes that are not quite JSON, for a small model."""
    schema = draw(
        st.sampled_from(
            [
                None,
                Schema([ColSpec("string", "a")]),
                Schema([TensorSpec(np.dtype("float32"), (-1, 2))]),
            ]
        )
    )
    whole = json_bytes({"inputs": draw(st.just([[1, 2.5]]) | st.just({"a": ["x", "y"]}))})
    raw = draw(st.just(whole) | st.binary(max_size=20) | anything.map(json_bytes))
    position = draw(st.integers(0, len(raw)))
    what = draw(st.sampled_from(["cut", "insert", "utf-16", "bom", "double"]))
    if what == "cut":
        raw = raw[:position] + raw[position + draw(st.integers(0, 3)) :]
    elif what == "insert":
        junk = st.binary(min_size=1, max_size=2) | st.sampled_from([b"\\ud800", b"NaN", b"1e999"])
        raw = raw[:position] + draw(junk) + raw[position:]
    elif what == "double":
        raw = raw[:-1] + b", " + raw[1:]
    else:
        raw = raw.decode("latin-1").encode("utf-16" if what == "utf-16" else "utf-8-sig")
    return Request(schema, None, raw)
