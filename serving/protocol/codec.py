"""One served entity's way from a request's body to tensors, and from the answer to JSON.

`decode_quickly` takes the well-formed requests; it gives None where MLflow's own parser has to
look, and `decode` does that too. Both cut a request of more rows than the model takes at once into
parts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.errors import InvalidInput
from serving.protocol import body as bodies
from serving.protocol.answers import Answer, join_answers, predictions_json, unpack_answer
from serving.protocol.body import Format
from serving.protocol.columns import columns_from_frame, columns_from_json, index_of
from serving.protocol.mlflow_parser import parse_fields, parse_table
from serving.protocol.plan import InputKind, InputPlan, input_specs, plan_inputs
from serving.protocol.tensors import (
    LARGE_BYTES,
    Array,
    tensor_from_large_body,
    tensors_from_json,
)
from serving.protocol.wire import Part, RequestWriter

EXTRAS_MARK = "@"
"""Before parameters with which something else travels; JSON never begins so."""

ALONE_MARK = "!"
"""The same, of a request whose rows must not share a call of the model with another one's."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A request as it goes to a replica.

    Attributes:
        parts: In order, at least one.
        params: The parameters as JSON text; or a mark and a JSON object with them and what else
            the shim has to know. With `EXTRAS_MARK`: "objects", the text columns that are of
            pandas' type for anything; "format" of a body that the shim parses itself. With
            `ALONE_MARK`: "shapes" of arrays that were filled up, the "index" of a frame, values
            of "columns" that are not of their type.
    """

    parts: tuple[Part, ...]
    params: str

    @property
    def is_alone(self) -> bool:
        """Whether its rows must not share a call of the model with another request's."""
        return self.params.startswith(ALONE_MARK)

    @property
    def rows(self) -> int:
        """Rows in all parts."""
        return sum(part.rows for part in self.parts)


class EntityCodec:
    """Decodes requests for, and answers of, one served entity on Triton.

    Args:
        signature: MLflow's `ModelSignature.to_dict()`, None without a signature.
        max_batch_size: Rows that the model takes at once.
    """

    def __init__(self, signature: Mapping[str, Any] | None, max_batch_size: int) -> None:
        self.plan: InputPlan = plan_inputs(signature)
        self._signature = signature or {}
        self._max_rows = max(1, max_batch_size)
        self._writer = RequestWriter(self.plan)
        only = self.plan.inputs[0]
        is_unnamed = self.plan.kind is InputKind.TENSORS and only.key is None
        self._large_input = only if is_unnamed else None
        self._gives_frames = self.plan.kind is InputKind.COLUMNS
        self._has_nested_columns = any(
            spec.get("type") in {"array", "object", "map", "any", "sparkml_vector"}
            for spec in input_specs(signature)
        )

    def can_join(self, params: str) -> bool:
        """Whether rows of such a request can travel with those of others as one request."""
        return self.plan.kind is not InputKind.JSON and not params.startswith(ALONE_MARK)

    def join_key(self, part: Part, params: str) -> tuple[object, ...]:
        """Equal for parts that can travel together, where `can_join`."""
        return self._writer.join_key(part, params)

    def write(self, parts: Sequence[Part], params: str) -> list[bytes]:
        """The HTTP request for one part, or for several of the same `join_key`, in pieces."""
        return self._writer.write(parts, params)

    def encode(self, answers: Sequence[Answer]) -> bytes:
        """The JSON of a request's answer from those to its parts, in order."""
        return predictions_json(join_answers(answers))

    def answer(self, outputs: Sequence[bytes]) -> Answer:
        """The answer from the packed output of each part, in order, with all of its JSON parsed."""
        return join_answers([unpack_answer(output) for output in outputs]).parsed()

    def decode_quickly(self, raw: bytes, form: Format = Format.JSON) -> Decoded | None:
        """Decode a well-formed request; None where `decode` has to be asked (in a thread).

        Raises:
            InvalidInput: The body cannot be read at all.
        """
        if form is not Format.JSON:
            return self._pass_table(raw, form) if self.plan.kind is InputKind.JSON else None
        if self._large_input is not None and len(raw) >= LARGE_BYTES:
            found = tensor_from_large_body(raw, self._large_input)
            if found is not None:
                array, params = found
                return self._cut([array], "" if params is None else bodies.params_text(params), {})
        body = bodies.read_body(raw)
        if self.plan.kind is InputKind.JSON:
            rows = min(self._json_rows(body), self._max_rows)
            return Decoded((_bytes_part(raw, rows),), body.params)
        arrays = self._read(body)
        if arrays is None:
            return None
        extras = self._index_of(body, len(arrays[0]))
        return None if extras is None else self._cut(arrays, body.params, extras)

    def decode(self, raw: bytes, form: Format = Format.JSON) -> Decoded:
        """Decode any request, with MLflow's parser where it is not of the usual form.

        Raises:
            InvalidInput: It cannot be read or does not fit the model's signature.
        """
        decoded = self.decode_quickly(raw, form)
        if decoded is not None:
            return decoded
        if form is not Format.JSON:
            data = parse_table(self._signature, raw, form)
            return self._cut_enforced(data, "", index_of(data) if self._gives_frames else {})
        body = bodies.read_body(raw)
        value = bodies.parse_exactly(raw)[body.field]
        data = parse_fields(self._signature, body.field, value)
        index = self._index_of(body, len(data)) or {}
        return self._cut_enforced(data, body.params, index)

    def decode_arrays(self, arrays: list[Array], params: str) -> Decoded:
        """Decode a request whose inputs are arrays already, in the plan's order.

        Raises:
            InvalidInput: They differ in their rows.
        """
        if len({len(array) for array in arrays}) > 1:
            counts = ", ".join(
                f"'{planned.key}' {len(array)}"
                for planned, array in zip(self.plan.inputs, arrays, strict=True)
            )
            raise InvalidInput(
                f"All inputs need the same number of rows (the length of the first axis): {counts}."
            )
        return self._cut(arrays, params, {})

    def _read(self, body: bodies.Body) -> list[Array] | None:
        inputs = self.plan.inputs
        if self._gives_frames:
            return columns_from_json(body.value, body.field, inputs)
        if body.field.startswith("dataframe"):
            return None
        return tensors_from_json(body.value, body.field, inputs)

    def _index_of(self, body: bodies.Body, rows: int) -> dict[str, Any] | None:
        """The index of a frame as an extra; {} if it is the usual one, None if it does not fit.

        Only models that get frames see it.
        """
        if body.field != "dataframe_split" or not self._gives_frames:
            return {}
        index = body.value.get("index")
        if index is None or (index == list(range(rows)) and all(type(n) is int for n in index)):
            return {}
        return {"index": index} if isinstance(index, list) and len(index) == rows else None

    def _cut_enforced(self, data: Any, params: str, extras: Mapping[str, Any]) -> Decoded:
        """Cut what MLflow's parser and enforcement made of a request."""
        inputs = self.plan.inputs
        try:
            if self._gives_frames:
                arrays, others = columns_from_frame(data, inputs)
                return self._cut(arrays, params, {**extras, **others})
            values = [data] if inputs[0].key is None else [data[planned.key] for planned in inputs]
            arrays = [
                np.ascontiguousarray(value, dtype=planned.dtype)
                for value, planned in zip(values, inputs, strict=True)
            ]
        except (ValueError, TypeError) as exc:
            raise InvalidInput(f"Failed to enforce the model's schema. Error: {exc}") from exc
        return self._cut(arrays, params, extras)

    def _cut(self, arrays: list[Array], params: str, extras: Mapping[str, Any]) -> Decoded:
        rows = len(arrays[0])
        if any(len(array) != rows or not array.size for array in arrays):
            extras = {**extras, "shapes": [array.shape for array in arrays]}
            arrays = _pad(arrays)
            rows = len(arrays[0])
        wired = [array.reshape(rows, 1) if array.ndim == 1 else array for array in arrays]
        if rows <= self._max_rows:
            text = _with_extras(params, extras) if extras else params
            return Decoded((Part(rows, tuple(wired)),), text)
        kept = {key: extra for key, extra in extras.items() if key != "index"}
        if kept.keys() - {"objects"}:
            raise InvalidInput(
                f"The request has up to {rows} rows, and inputs of different lengths or with values"
                f" of several types; such requests may have {self._max_rows} rows. Send fewer."
            )
        parts = []
        for start in range(0, rows, self._max_rows):
            cut = tuple(array[start : start + self._max_rows] for array in wired)
            parts.append(Part(len(cut[0]), cut))
        # An index is not kept: the rows of each part are numbered anew.
        return Decoded(tuple(parts), _with_extras(params, kept) if kept else params)

    # ---------------------------------------------------------------- the JSON way

    def _pass_table(self, raw: bytes, form: Format) -> Decoded:
        lines = raw.count(b"\n") if form is Format.CSV else 0
        part = _bytes_part(raw, min(max(1, lines - 1), self._max_rows))
        return Decoded((part,), _with_extras("", {"format": form.name.lower()}))

    def _json_rows(self, body: bodies.Body) -> int:
        """Rows of the request as far as its JSON tells, so that Triton's batches count them."""
        value = body.value
        if not self.plan.is_joinable:
            return 1
        if body.field == "dataframe_split" and isinstance(value, dict):
            value = value.get("data")
        if isinstance(value, list):
            return max(1, len(value))
        if self._has_nested_columns or not isinstance(value, dict):
            return 1
        lengths = [len(items) for items in value.values() if isinstance(items, list)]
        return max(1, *lengths) if lengths else 1


def _with_extras(params: str, extras: Mapping[str, Any]) -> str:
    mark = ALONE_MARK if extras.keys() - {"objects", "format"} else EXTRAS_MARK
    return mark + json.dumps({"params": params, **extras})


def _pad(arrays: list[Array]) -> list[Array]:
    """Arrays of different or no rows, which Triton refuses, filled up with zeros."""
    rows = max(1, *(len(array) for array in arrays))
    padded = []
    for array in arrays:
        room = np.zeros((rows, *(max(1, n) for n in array.shape[1:])), dtype=array.dtype)
        if array.size:
            room[: len(array)] = array
        padded.append(room)
    return padded


def _bytes_part(text: bytes, rows: int) -> Part:
    """A body as bytes `[rows, W]`: u32 length and the text, cut into equal pieces."""
    width = -(-(4 + len(text)) // rows)
    data = (struct.pack("<I", len(text)) + text).ljust(rows * width, b"\0")
    return Part(rows, (np.frombuffer(data, dtype=np.uint8).reshape(rows, width),))
