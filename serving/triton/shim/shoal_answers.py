"""Turns whatever a model returns into bytes that the gateway turns into JSON.

An answer is one UINT8 tensor `[1, L]`: u32 header length, JSON header, buffers. The header is
padded so that the buffers start at a multiple of 8, and so is each buffer:

    {"kind": "ndarray" | "list" | "dict" | "frame" | "value", "names": [...],
     "columns": [{"dtype": "float32", "shape": [2, 3], "size": 24}, {"dtype": "json", "size": 17}],
     "compute_us": 740}

Copied beside `model.py`, with the same restrictions.
"""

from __future__ import annotations

import base64
import datetime
import json
import struct

import numpy as np


def pack_answer(kind, names, columns, compute_us=None):
    """One request's answer as writable bytes.

    Args:
        kind: "ndarray", "list", "dict", "frame" or "value".
        names: Of the columns, for "dict" and "frame".
        columns: Arrays of plain numbers, or anything that JSON can hold.
        compute_us: Microseconds that the model took for the call that this is from.
    """
    described, buffers = [], []
    for column in columns:
        if isinstance(column, np.ndarray):
            buffer = column.tobytes()
            described.append(
                {"dtype": column.dtype.name, "shape": column.shape, "size": len(buffer)}
            )
        else:
            buffer = to_json(column).encode("utf-8")
            described.append({"dtype": "json", "size": len(buffer)})
        buffers.append(buffer)
    described = {"kind": kind, "names": names, "columns": described, "compute_us": compute_us}
    header = json.dumps(described).encode()
    header += b" " * (-(4 + len(header)) % 8)
    packed = bytearray(struct.pack("<I", len(header)) + header)
    for buffer in buffers:
        packed += buffer
        packed += b"\0" * (-len(buffer) % 8)
    return packed


def to_json(value):
    """JSON text as MLflow's scoring server writes it, NaN and infinity as bare words."""
    try:
        return json.dumps(value, default=_to_jsonable)
    except TypeError:
        return json.dumps(_with_plain_keys(value))


def _to_jsonable(value):
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (bytes, bytearray)):
        return base64.encodebytes(value).decode("ascii")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if type(value).__name__ == "NAType":
        return None
    if type(value).__name__ == "DataFrame":
        return value.to_dict(orient="records")
    for method in ("model_dump", "tolist"):  # pydantic; Series and tensors
        convert = getattr(value, method, None)
        if callable(convert):
            return convert()
    raise TypeError(
        f"The model's answer holds a value of type {type(value).__name__} which JSON cannot hold."
    )


def _with_plain_keys(value):
    """The value with names that JSON can hold, where MLflow's server would fail."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {_name(k): _with_plain_keys(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_plain_keys(v) for v in value]
    return _with_plain_keys(_to_jsonable(value))


def take_apart(result):
    """A model's answer as `(kind, names, columns, rows)`; rows is None where it has no rows.

    Columns are arrays of plain numbers or lists; both are cut by slices.
    """
    kind_name = type(result).__name__
    if kind_name == "DataFrame":
        if not result.shape[1]:
            return "list", [], [[{}] * len(result)], len(result)
        columns = [_column(result.iloc[:, i]) for i in range(result.shape[1])]
        return "frame", [_name(c) for c in result.columns], columns, len(result)
    if kind_name == "Series":
        name = "0" if result.name is None else _name(result.name)
        return "frame", [name], [_column(result)], len(result)
    result = _to_array(result)
    if isinstance(result, np.ndarray) and result.ndim:
        column = _column(result)
        return ("ndarray" if isinstance(column, np.ndarray) else "list"), [], [column], len(column)
    if isinstance(result, (list, tuple)):
        return "list", [], [list(result)], len(result)
    if isinstance(result, dict):
        values = [_to_array(v) for v in result.values()]
        rows = {_rows(v) for v in values}
        if len(rows) == 1 and None not in rows:
            names = [_name(k) for k in result]
            return "dict", names, [_column(v) for v in values], rows.pop()
    return "value", [], [result.item() if isinstance(result, np.ndarray) else result], None


def _rows(value):
    if isinstance(value, np.ndarray):
        return len(value) if value.ndim else None
    is_sized = isinstance(value, (list, tuple)) or type(value).__name__ == "Series"
    return len(value) if is_sized else None


def _name(value):
    """A column's name as JSON writes a key."""
    return value if isinstance(value, str) else json.loads(json.dumps({_plain(value): 0})[1:-4])


def _plain(value):
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, (int, float, bool, type(None))) else str(value)


def _to_array(value):
    """Tensors of torch, TensorFlow, JAX and scipy's sparse matrices as arrays."""
    if isinstance(value, (np.ndarray, list, tuple, dict, str, bytes)):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        try:
            return value.numpy()
        except TypeError:  # bfloat16, which NumPy lacks
            return value.float().numpy()
    if hasattr(value, "toarray"):
        return value.toarray()
    if hasattr(value, "__array__") and type(value).__name__ not in ("DataFrame", "Series"):
        return np.asarray(value)
    return value


def _column(values):
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf" and dtype.itemsize <= 8:
        return np.ascontiguousarray(values).astype(dtype.newbyteorder("="), copy=False)
    return values.tolist() if hasattr(values, "tolist") else list(values)
