"""What a request's tensors say: the model's input, its rows, and what it may be joined with.

Like the rest of the shim it runs in the model's environment and keeps to Python 3.8.
"""

from __future__ import annotations

import io
import json
import struct

import numpy as np

NULL_LENGTH = 0xFFFFFFFF  # the length of a missing text
JSON_FLAG = 0x80000000  # in the length of a value in a text column that is JSON
EXTRAS_MARK = "@"  # before parameters with which something else travels
ALONE_MARK = "!"  # the same, of a request that must be run alone


# ---------------------------------------------------------------- tensors


def unpack_text(array):
    """`[N, W]` bytes, each row u32 length and UTF-8, as a list of N strings or None.

    A value with a flag in its length is JSON.
    """
    width = array.shape[1]
    data = array.tobytes()
    lengths = np.ascontiguousarray(array[:, :4]).view("<u4").ravel().tolist()
    return [_unpack_cell(data, i * width + 4, length) for i, length in enumerate(lengths)]


def _unpack_cell(data, start, length):
    if length < JSON_FLAG:
        return data[start : start + length].decode("utf-8", "surrogatepass")
    if length == NULL_LENGTH:
        return None
    return json.loads(data[start : start + length - JSON_FLAG].decode("utf-8"))


def unpack_bytes(array):
    """`[N, W]` bytes, together u32 length, a body and padding, as the body."""
    data = array.tobytes()
    (length,) = struct.unpack_from("<I", data)
    return data[4 : 4 + length]


def restore(array, shape):
    """An array that was filled up to travel, as it was; `shape` without the wire's additions."""
    if 0 in shape:
        return np.zeros(shape if len(shape) > 1 else (shape[0], 1), array.dtype)
    return array[: shape[0]]


# ---------------------------------------------------------------- requests


class Item:
    """One request, read: the model's input, its rows, and what it may be joined with.

    `key` is None where the request must be run alone; its answer then need not have its rows.
    """

    __slots__ = ("_data", "_make", "key", "params", "position", "rows")

    def __init__(self, position, params, make, describe):
        self.position = position
        self.params = params
        self._make = make
        self._data = make()
        self.rows, self.key = describe(self._data)

    def take(self):
        """The model's input, new each time: a call that failed may have changed what it got."""
        data, self._data = self._data, None
        return self._make() if data is None else data


def describe(data):
    """`(rows, key)` of a parsed model input; `(None, None)` where it cannot be joined."""
    if isinstance(data, np.ndarray) and data.ndim:
        return len(data), ("ndarray", _dtype_key(data), data.shape[1:])
    if isinstance(data, list):
        return _describe_list(data)
    if isinstance(data, dict) and all(isinstance(v, np.ndarray) and v.ndim for v in data.values()):
        if len({len(v) for v in data.values()}) != 1:
            return None, None
        parts = tuple((k, _dtype_key(v), v.shape[1:]) for k, v in data.items())
        return len(next(iter(data.values()))), ("dict", parts)
    if type(data).__name__ == "DataFrame" and type(data.index).__name__ == "RangeIndex":
        return len(data), ("frame", tuple(data.columns), tuple(str(t) for t in data.dtypes))
    return None, None


def _describe_list(data):
    kinds = {tuple(sorted(row, key=str)) if isinstance(row, dict) else None for row in data}
    if len(kinds) != 1:
        return None, None
    return len(data), ("list", kinds.pop())


def _dtype_key(array):
    return array.dtype.kind if array.dtype.kind in "USO" else array.dtype.str


def join(parts):
    """Inputs of the same key as one, which the model may change."""
    first = parts[0]
    if len(parts) == 1:
        return _writable(first)
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if isinstance(first, list):
        return [row for part in parts for row in part]
    if isinstance(first, dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in first}
    import pandas as pd

    return pd.concat(parts, ignore_index=True)


def cut_rows(data, start, stop):
    """Some rows of a parsed model input that `describe` gave a key."""
    if isinstance(data, dict):
        return {name: value[start:stop] for name, value in data.items()}
    if isinstance(data, (list, np.ndarray)):
        return data[start:stop]
    return data.iloc[start:stop].reset_index(drop=True)


def _writable(data):
    """Triton's memory is read-only, and not the model's to keep: copied, when no join does it."""
    if isinstance(data, dict):
        return {name: _writable(value) for name, value in data.items()}
    return data.copy() if isinstance(data, np.ndarray) and not data.flags.owndata else data


class Reader:
    """Turns one request's tensors into the model's input."""

    def __init__(self, plan, model):
        self.inputs = plan["inputs"]
        self.kind = plan["kind"]
        self.is_joinable = plan["is_joinable"]
        self.metadata = model.metadata
        self.schema = model.metadata.get_input_schema() if self.kind == "json" else None
        self.has_nested_columns = self.schema is not None and not (
            self.schema.is_tensor_spec()
            or all(hasattr(t, "to_pandas") for t in _types(self.schema))
        )

    def read(self, position, arrays, params):
        """One `Item` of the arrays in the plan's order."""
        extras = {}
        is_alone = params.startswith(ALONE_MARK)
        if is_alone or params.startswith(EXTRAS_MARK):
            extras = json.loads(params[1:])
            params = extras["params"]
        if "shapes" in extras:
            arrays = [restore(a, shape) for a, shape in zip(arrays, extras["shapes"])]

        def describe_with_params(data):
            rows, key = (None, None) if is_alone else self._describe(data)
            return (rows, (params, key)) if _is_hashable(key) else (None, None)

        return Item(position, params, lambda: self._make(arrays, extras), describe_with_params)

    def _make(self, arrays, extras):
        if self.kind == "tensors":
            return self._tensors(arrays)
        if self.kind == "columns":
            return self._columns(arrays, extras)
        return self._parse(unpack_bytes(arrays[0]), extras.get("format", "json"))

    def _describe(self, data):
        is_nested = isinstance(data, dict) and self.has_nested_columns
        if is_nested or not self.is_joinable or self._has_no_column(data):
            return None, None  # an array may be one row's value here, not a column
        return describe(data)

    def _has_no_column(self, data):
        """Whether columns have names and none of them is there: rows are lost in such a frame."""
        if self.schema is None or self.schema.is_tensor_spec() or not self.schema.has_input_names():
            return False
        if isinstance(data, list):
            data = data[0] if data and isinstance(data[0], dict) else ()
        names = getattr(data, "columns", data if isinstance(data, dict) else ())
        return not any(name in names for name in self.schema.input_names())

    def _tensors(self, arrays):
        shaped = [
            array.reshape(array.shape[0]) if len(planned["shape"]) == 1 else array
            for planned, array in zip(self.inputs, arrays)
        ]
        if self.inputs[0]["key"] is None:
            return shaped[0]
        return {planned["key"]: array for planned, array in zip(self.inputs, shaped)}

    def _columns(self, arrays, extras):
        import pandas as pd

        objects = extras.get("objects", ())
        columns = {}
        for planned, array in zip(self.inputs, arrays):
            name = planned["key"]
            columns[name] = unpack_text(array) if planned["dtype"] == "str" else array[:, 0].copy()
            if name in objects:
                columns[name] = pd.Series(columns[name], dtype=object)
            elif not len(array):
                columns[name] = pd.Series(columns[name], dtype=planned["dtype"])
        frame = pd.DataFrame(columns)
        for name, values in extras.get("columns", {}).items():
            frame[name] = pd.Series(values, dtype=object)
        if "index" in extras:
            frame.index = extras["index"]
        return frame

    def _parse(self, body, form):
        from mlflow.pyfunc import scoring_server

        if form == "csv":
            text = io.StringIO(_decode(body))
            return scoring_server.parse_csv_input(text, schema=self.schema)
        if form == "parquet":
            return scoring_server.parse_parquet_input(io.BytesIO(body))
        fields = json.loads(body)
        parse = getattr(scoring_server, "_parse_json_data", None)
        if parse is not None:
            return parse(fields, self.metadata, self.schema)[0]
        data = {k: v for k, v in fields.items() if k in scoring_server.SUPPORTED_FORMATS}
        return scoring_server.infer_and_parse_data(data, self.schema)


def _decode(body):
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as exc:
        from mlflow.utils.proto_json_utils import MlflowInvalidInputException

        raise MlflowInvalidInputException(
            f"Ensure that input is a valid UTF-8 encoded string. Error: '{exc!r}'"
        ) from exc


def _is_hashable(key):
    """Whether items can be grouped by a key; names of columns may be lists and dictionaries."""
    try:
        return key is not None and isinstance(hash(key), int)
    except TypeError:
        return False


def _types(schema):
    return [spec.type for spec in schema.inputs]
