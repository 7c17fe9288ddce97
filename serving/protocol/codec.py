"""One served entity's way from a request's body to tensors, and from the answer to JSON.

`decode_quickly` takes the well-formed requests; it gives None where MLflow's own parser has to
look, and `decode` does that too. Both cut a request of more rows than the model takes at once into
parts.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.errors import InvalidInput
from serving.protocol import body as bodies
from serving.protocol.answers import Answer, join_answers, predictions_json, unpack_answer
from serving.protocol.columns import Column, columns_from_frame, columns_from_json, pack_text
from serving.protocol.mlflow_parser import parse_and_enforce
from serving.protocol.plan import InputKind, InputPlan, input_specs, plan_inputs
from serving.protocol.tensors import (
    LARGE_BYTES,
    Array,
    tensor_from_large_body,
    tensors_from_json,
)
from serving.protocol.wire import Part, RequestWriter

EMPTY_PREDICTIONS = b'{"predictions":[]}'


@dataclass(frozen=True, slots=True)
class Decoded:
    """A request as it goes to a replica: its parts in order, and its parameters as JSON text."""

    parts: tuple[Part, ...]
    params: str

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
        self._has_nested_columns = any(
            spec.get("type") in {"array", "object", "map", "any", "sparkml_vector"}
            for spec in input_specs(signature)
        )

    @property
    def can_join(self) -> bool:
        """Whether rows of several requests can travel as one request to Triton."""
        return self.plan.kind is not InputKind.JSON

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
        """The answer from the packed output of each part, in order."""
        return join_answers([unpack_answer(output) for output in outputs])

    def decode_quickly(self, raw: bytes) -> Decoded | None:
        """Decode a well-formed request; None where `decode` has to be asked (in a thread).

        Raises:
            InvalidInput: The body cannot be read at all.
        """
        if self._large_input is not None and len(raw) >= LARGE_BYTES:
            found = tensor_from_large_body(raw, self._large_input)
            if found is not None:
                array, params = found
                return self._cut([array], "" if params is None else bodies.params_text(params))
        body = bodies.read_body(raw)
        if self.plan.kind is InputKind.JSON:
            return self._cut_json(body)
        arrays = self._read(body)
        return None if arrays is None else self._cut(arrays, body.params)

    def decode(self, raw: bytes) -> Decoded:
        """Decode any request, with MLflow's parser where it is not of the usual form.

        Raises:
            InvalidInput: It cannot be read or does not fit the model's signature.
        """
        decoded = self.decode_quickly(raw)
        if decoded is not None:
            return decoded
        body = bodies.read_body(raw)
        data = parse_and_enforce(self._signature, self.plan, body.field, body.value)
        return self._cut(self._from_enforced(data), body.params)

    def decode_arrays(self, arrays: list[Array], params: str) -> Decoded:
        """Decode a request whose inputs are arrays already, in the plan's order.

        Raises:
            InvalidInput: They differ in their rows.
        """
        return self._cut(arrays, params)

    def _read(self, body: bodies.Body) -> list[Array] | None:
        inputs = self.plan.inputs
        if self.plan.kind is InputKind.TENSORS:
            if body.field.startswith("dataframe"):
                return None
            return tensors_from_json(body.value, body.field, inputs)
        columns = columns_from_json(body.value, body.field, inputs)
        return None if columns is None else _pack_columns(columns)

    def _from_enforced(self, data: Any) -> list[Array]:
        inputs = self.plan.inputs
        try:
            if self.plan.kind is InputKind.COLUMNS:
                return _pack_columns(columns_from_frame(data, inputs))
            values = [data] if inputs[0].key is None else [data[planned.key] for planned in inputs]
            return [
                np.ascontiguousarray(value, dtype=planned.dtype)
                for value, planned in zip(values, inputs, strict=True)
            ]
        except (ValueError, TypeError) as exc:
            raise InvalidInput(f"Failed to enforce the model's schema. Error: {exc}") from exc

    def _cut(self, arrays: list[Array], params: str) -> Decoded:
        rows = len(arrays[0])
        if any(len(array) != rows for array in arrays):
            counts = ", ".join(
                f"'{planned.key}' {len(array)}"
                for planned, array in zip(self.plan.inputs, arrays, strict=True)
            )
            raise InvalidInput(
                f"All inputs need the same number of rows (the length of the first axis): {counts}."
            )
        wired = [array.reshape(rows, 1) if array.ndim == 1 else array for array in arrays]
        if rows <= self._max_rows:
            return Decoded((Part(rows, tuple(wired)),) if rows else (), params)
        parts = []
        for start in range(0, rows, self._max_rows):
            cut = tuple(array[start : start + self._max_rows] for array in wired)
            parts.append(Part(len(cut[0]), cut))
        return Decoded(tuple(parts), params)

    # ---------------------------------------------------------------- the JSON way

    def _cut_json(self, body: bodies.Body) -> Decoded:
        rows = self._json_rows(body)
        if rows is None or rows <= self._max_rows:
            counted = rows or 1
            return Decoded((_json_part(body.field, body.value, counted),), body.params)
        if isinstance(body.value, dict) and body.field != "dataframe_split":
            # Columns of tensors cannot be cut without knowing the model: one part, counted full.
            part = _json_part(body.field, body.value, self._max_rows)
            return Decoded((part,), body.params)
        parts = []
        for start in range(0, rows, self._max_rows):
            cut = _slice(body.field, body.value, start, start + self._max_rows)
            parts.append(_json_part(body.field, cut, min(self._max_rows, rows - start)))
        return Decoded(tuple(parts), body.params)

    def _json_rows(self, body: bodies.Body) -> int | None:
        """Rows of the request as far as its JSON tells; None where it has to go as one."""
        value = body.value
        if not self.plan.is_joinable:
            return None
        if isinstance(value, list):
            return len(value)
        if not isinstance(value, dict):
            return None
        if body.field == "dataframe_split":
            data = value.get("data")
            return len(data) if isinstance(data, list) else None
        if self._has_nested_columns or not all(isinstance(v, list) for v in value.values()):
            return None
        lengths = {len(items) for items in value.values()}
        return lengths.pop() if len(lengths) == 1 else None


def _pack_columns(columns: Sequence[Column]) -> list[Array]:
    try:
        return [c if isinstance(c, np.ndarray) else pack_text(c) for c in columns]
    except UnicodeEncodeError as exc:
        raise InvalidInput("The body holds text that is not valid Unicode.") from exc


def _slice(field: str, value: Any, start: int, stop: int) -> Any:
    if field != "dataframe_split":
        return value[start:stop]
    return {
        key: item[start:stop] if key in {"data", "index"} and isinstance(item, list) else item
        for key, item in value.items()
    }


def _json_part(field: str, value: Any, rows: int) -> Part:
    """`{field: value}` as bytes `[rows, W]`: u32 length and JSON, cut into equal pieces."""
    text = bodies.dump({field: value})
    width = -(-(4 + len(text)) // rows)
    data = (struct.pack("<I", len(text)) + text).ljust(rows * width, b"\0")
    return Part(rows, (np.frombuffer(data, dtype=np.uint8).reshape(rows, width),))
