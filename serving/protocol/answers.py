"""The shim's packed answers to the JSON that MLflow's scoring server would send.

The format is described in the shim (`serving/triton/shim/shoal_answers.py`). NaN and Infinity
become null: the clients cannot read MLflow's bare words.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to one request.

    Attributes:
        kind: "ndarray", "list", "dict" (of columns), "frame" or "value".
        names: Of the columns, for "dict" and "frame".
        columns: Arrays of plain numbers, or parsed JSON (lists; anything for "value").
        compute_s: How long the model took for the call that this is from; None where unknown.
    """

    kind: str
    names: tuple[str, ...]
    columns: tuple[Any, ...]
    compute_s: float | None = None

    @property
    def rows(self) -> int | None:
        """Rows that the model returned; None where its answer has no rows."""
        if self.kind == "value":
            return None
        return len(self.columns[0]) if self.columns else 0


def unpack_answer(packed: bytes) -> Answer:
    """Read what the shim packed."""
    (header_length,) = struct.unpack_from("<I", packed)
    start = 4 + header_length
    header = orjson.loads(packed[4:start])
    columns: list[Any] = []
    for described in header["columns"]:
        size = described["size"]
        if described["dtype"] == "json":
            columns.append(orjson.loads(packed[start : start + size]))
        else:
            dtype = np.dtype(described["dtype"])
            count = size // dtype.itemsize
            array = np.frombuffer(packed, dtype=dtype, count=count, offset=start)
            columns.append(array.reshape(described["shape"]))
        start += size + (-size % 8)
    compute_us = header.get("compute_us")
    compute_s = None if compute_us is None else compute_us / 1e6
    return Answer(header["kind"], tuple(header["names"]), tuple(columns), compute_s)


def split_answer(answer: Answer, rows: Sequence[int]) -> list[Answer]:
    """The answer to joined requests as one for each, in joining order.

    Args:
        answer: With a row for each row of the requests.
        rows: That each request brought.
    """
    if len(rows) == 1:
        return [answer]
    answers, start = [], 0
    for count in rows:
        columns = tuple(column[start : start + count] for column in answer.columns)
        answers.append(Answer(answer.kind, answer.names, columns, answer.compute_s))
        start += count
    return answers


def join_answers(answers: Sequence[Answer]) -> Answer:
    """The answers to the parts of one request as one, in their order."""
    first = answers[0]
    if len(answers) == 1:
        return first
    if any((a.kind, a.names) != (first.kind, first.names) for a in answers):
        listed = [row for answer in answers for row in to_rows(answer)]
        return Answer("list", (), (listed,))
    columns = tuple(
        _join_columns([answer.columns[position] for answer in answers])
        for position in range(len(first.columns))
    )
    return Answer(first.kind, first.names, columns)


def _join_columns(columns: list[Any]) -> Any:
    shapes = {c.shape[1:] if isinstance(c, np.ndarray) else None for c in columns}
    if len(shapes) == 1 and None not in shapes:
        return np.concatenate(columns)
    return [row for column in columns for row in _plain(column)]


def to_rows(answer: Answer) -> list[Any]:
    """The answer as a list of JSON-able rows."""
    if answer.kind == "frame":
        return _records(answer)
    if answer.kind in {"ndarray", "list"}:
        return list(_plain(answer.columns[0]))
    return [_jsonable(answer)]


def predictions_json(answer: Answer) -> bytes:
    """The body of the answer: `{"predictions": ...}`."""
    if answer.kind == "ndarray":
        # The common case: written by orjson straight from the array's memory.
        return b'{"predictions":' + orjson.dumps(answer.columns[0], option=_OPTIONS) + b"}"
    return orjson.dumps({"predictions": _jsonable(answer)}, option=_OPTIONS)


def _jsonable(answer: Answer) -> Any:
    if answer.kind == "frame":
        return _records(answer)
    if answer.kind == "dict":
        return dict(zip(answer.names, answer.columns, strict=True))
    return answer.columns[0]


def _records(answer: Answer) -> list[dict[str, Any]]:
    columns = [_plain(column) for column in answer.columns]
    return [dict(zip(answer.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(column: Any) -> list[Any]:
    if not isinstance(column, np.ndarray):
        return list(column)
    if column.dtype == np.float32 or column.dtype == np.float16:
        # Rows of shortest digits, as for an array: 0.1, not 0.10000000149011612.
        rows: list[Any] = orjson.loads(orjson.dumps(column, option=_OPTIONS))
        return rows
    plain: list[Any] = column.tolist()
    return plain


def clean_json(body: bytes) -> bytes:
    """A JSON text that may hold Python's NaN and Infinity, with null in their place."""
    if b"NaN" not in body and b"Infinity" not in body:
        return body
    return json.dumps(_without_nan(json.loads(body)), separators=(",", ":")).encode()


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return value
