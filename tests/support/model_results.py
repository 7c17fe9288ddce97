"""Hypothesis strategies: what models return."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pydantic
from hypothesis import strategies as st

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", ">f4", ">i8"),
]


class Box(pydantic.BaseModel):
    """A result with a shape of its own."""

    label: str
    scores: list[float]


floats = st.floats(width=32) | st.floats() | st.sampled_from([float("nan"), float("inf"), -0.0])
texts = st.text(max_size=5)
times = st.datetimes(
    min_value=datetime.datetime(1700, 1, 1),  # noqa: DTZ001 - models return them without a zone
    max_value=datetime.datetime(2200, 1, 1),  # noqa: DTZ001 - the same
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    floats,
    texts,
    st.binary(max_size=60),
    times,
    st.dates(),
    times.map(pd.Timestamp),
    st.just(pd.NaT),
    st.floats(width=32).map(np.float32),
    floats.map(np.float64),
    st.integers(0, 255).map(np.uint8),
    st.booleans().map(np.bool_),
    times.map(lambda at: np.datetime64(at, "s")),
    st.builds(Box, label=texts, scores=st.lists(floats, max_size=2)),
)
jsonable = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(texts | st.integers() | st.booleans() | st.none(), inner, max_size=2)
    ),
    max_leaves=5,
)


@st.composite
def arrays(draw: st.DrawFn, rows: int | None = None) -> Any:
    """An array of any kind; with a given number of rows, or from no dimension up."""
    dims = draw(st.lists(st.integers(0, 3), max_size=2))
    shape = [rows, *dims] if rows is not None else dims
    size = int(np.prod(shape))
    kind = draw(st.sampled_from(["number", "number", "number", "text", "bytes", "time", "object"]))
    if kind == "number":
        raw = draw(st.binary(min_size=8 * size, max_size=8 * size))
        dtype = np.dtype(draw(st.sampled_from(DTYPES)))
        if dtype.kind == "b":
            return (np.frombuffer(raw, np.uint8)[:size] > 127).reshape(shape)
        array = np.frombuffer(raw, dtype)[:size].reshape(shape)
        return array.T.copy().T if draw(st.booleans()) else array
    if kind == "time":
        unit = draw(st.sampled_from(["s", "ms", "us", "ns"]))
        values = draw(st.lists(st.integers(0, 2**30), min_size=size, max_size=size))
        return np.array(values, dtype=f"datetime64[{unit}]").reshape(shape)
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "text": texts,
        "bytes": st.binary(max_size=4),
        "object": jsonable,
    }
    values = draw(st.lists(kinds[kind], min_size=size, max_size=size))
    if kind != "object":
        return np.array(values, dtype="U" if kind == "text" else "S").reshape(shape)
    array = np.empty(size, dtype=object)
    array[:] = values
    return array.reshape(shape)


@st.composite
def columns(draw: st.DrawFn, rows: int) -> Any:
    """What one column of a frame may hold."""
    kind = draw(st.sampled_from(["array", "texts", "times", "objects", "categories"]))
    if kind == "array":
        dtype = draw(st.sampled_from(DTYPES[:12]))
        numbers = draw(
            st.lists(st.integers(0, 1) | st.integers(0, 100), min_size=rows, max_size=rows)
        )
        values = np.array(numbers, dtype=dtype)
        if values.dtype.kind == "f" and rows and draw(st.booleans()):
            values[0] = draw(st.sampled_from([np.nan, np.inf, 0.1]))
        return values
    items: st.SearchStrategy[Any] = {
        "texts": texts | st.none(),
        "times": times,
        "objects": jsonable,
        "categories": st.sampled_from(["a", "b"]),
    }[kind]
    found = draw(st.lists(items, min_size=rows, max_size=rows))
    if kind == "times":
        return pd.Series(found, dtype="datetime64[ns]")
    if kind == "categories":
        return pd.Series(found, dtype="category")
    return pd.Series(found, dtype=object if kind == "objects" else None)


@st.composite
def frames(draw: st.DrawFn) -> Any:
    """A frame, or one column of it as a series."""
    rows = draw(st.integers(0, 3))
    names = draw(st.lists(texts | st.integers(-5, 5), max_size=3, unique_by=str))
    frame = pd.DataFrame(index=range(rows))
    for position, name in enumerate(names):
        frame.insert(position, name, draw(columns(rows)))
    if names and draw(st.integers(0, 3)) == 0:
        series = frame[names[0]]
        return series.rename(None) if draw(st.booleans()) else series
    if draw(st.booleans()):
        frame.index = pd.Index([f"row {n}" for n in range(rows)])
    return frame


@st.composite
def dictionaries(draw: st.DrawFn) -> Any:
    """A dictionary of columns."""
    rows = draw(st.integers(0, 3))
    values = arrays(rows) | st.lists(jsonable, min_size=rows, max_size=rows)
    return draw(st.dictionaries(texts, values, max_size=3))


def results() -> st.SearchStrategy[Any]:
    """Anything that a model may return."""
    return st.one_of(
        arrays(), frames(), dictionaries(), st.lists(jsonable, max_size=4), jsonable, scalars
    )
