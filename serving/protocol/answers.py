"""The shim's packed answers to the JSON that MLflow's scoring server would send.

The format is described in the shim (`serving/triton/shim/shoal_answers.py`). NaN and infinity are
the bare words that MLflow's server writes (`NaN`, `Infinity`), which Python's `json` reads. Floats
of 32 and 16 bits have their shortest digits (0.1, where MLflow writes 0.10000000149011612): read
back as such a float they are the same.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY
_BEYOND_STRICT_JSON = re.compile(rb"NaN|Infinity|\d{20}|\\u[dD]")
"""What orjson refuses or changes: not numbers, long whole numbers, halves of surrogate pairs."""


def parse_json(text: bytes) -> Any:
    """What Python's `json` reads in `text`, quickly where it is strict JSON."""
    return json.loads(text) if _BEYOND_STRICT_JSON.search(text) else orjson.loads(text)


@dataclass(frozen=True, slots=True)
class JsonText:
    """A column that the shim wrote as JSON: a list of values, or anything for "value"."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to one request.

    Attributes:
        kind: "ndarray", "list", "dict" (of columns), "frame" or "value".
        names: Of the columns, for "dict" and "frame".
        columns: Arrays of plain numbers, or JSON: as text or parsed.
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
        return len(_values(self.columns[0])) if self.columns else 0

    def parsed(self) -> Answer:
        """The same with its JSON parsed: lists, or anything for "value"."""
        columns = tuple(parse_json(c.text) if isinstance(c, JsonText) else c for c in self.columns)
        return Answer(self.kind, self.names, columns, self.compute_s)


def unpack_answer(packed: bytes) -> Answer:
    """Read what the shim packed."""
    (header_length,) = struct.unpack_from("<I", packed)
    start = 4 + header_length
    header = orjson.loads(packed[4:start])
    columns: list[Any] = []
    for described in header["columns"]:
        size = described["size"]
        if described["dtype"] == "json":
            columns.append(JsonText(packed[start : start + size]))
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
    answer = answer.parsed()
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
    alike = all((a.kind, a.names) == (first.kind, first.names) for a in answers)
    if first.kind == "value" or not alike:
        listed = [row for answer in answers for row in to_rows(answer)]
        return Answer("list", (), (_as_text(listed),))
    columns = tuple(
        _join_columns([answer.columns[position] for answer in answers])
        for position in range(len(first.columns))
    )
    return Answer(first.kind, first.names, columns)


def _join_columns(columns: list[Any]) -> Any:
    shapes = {c.shape[1:] if isinstance(c, np.ndarray) else None for c in columns}
    if len(shapes) == 1 and None not in shapes:
        return np.concatenate(columns)
    return _as_text([row for column in columns for row in _values(column)])


def _as_text(rows: list[Any]) -> JsonText:
    return JsonText(json.dumps(rows).encode())


def to_rows(answer: Answer) -> list[Any]:
    """The answer as a list of JSON-able rows."""
    if answer.kind == "frame":
        return _records(answer)
    if answer.kind in {"ndarray", "list"}:
        return list(_values(answer.columns[0]))
    if answer.kind == "dict":
        return [dict(zip(answer.names, map(_values, answer.columns), strict=True))]
    return [answer.parsed().columns[0]]


def predictions_json(answer: Answer) -> bytes:
    """The body of the answer: `{"predictions": ...}`."""
    if answer.kind == "frame":
        return b'{"predictions":' + _dump(_records(answer)) + b"}"
    if answer.kind == "dict":
        pairs = [
            orjson.dumps(name) + b":" + _column_json(column)
            for name, column in zip(answer.names, answer.columns, strict=True)
        ]
        return b'{"predictions":{' + b",".join(pairs) + b"}}"
    return b'{"predictions":' + _column_json(answer.columns[0]) + b"}"


def _column_json(column: Any) -> bytes:
    return column.text if isinstance(column, JsonText) else _dump(column)


def _dump(value: Any) -> bytes:
    """An array or parsed JSON as text; in the common case by orjson, from an array's memory."""
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except TypeError:  # whole numbers beyond 64 bits, half of a surrogate pair
        text = b"null"
    if b"null" not in text:  # which orjson writes for NaN and infinity too
        return text
    return json.dumps(value.tolist() if isinstance(value, np.ndarray) else value).encode()


def _records(answer: Answer) -> list[dict[str, Any]]:
    columns = [_values(column) for column in answer.columns]
    return [dict(zip(answer.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: Any) -> list[Any]:
    if isinstance(column, JsonText):
        values: list[Any] = parse_json(column.text)
        return values
    if not isinstance(column, np.ndarray):
        return list(column)
    if column.dtype == np.float32 or column.dtype == np.float16:
        # Rows of shortest digits, as for an array: 0.1, not 0.10000000149011612.
        rows: list[Any] = parse_json(_dump(column))
        return rows
    plain: list[Any] = column.tolist()
    return plain
