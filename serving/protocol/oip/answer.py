"""A model's answer as the protocol's output tensors, and the reply's body.

An array, and a list of numbers or of texts, is one output: the signature's name for it, else
`output_0`. Each column of a table and each entry of a dict is an output of its name. Rows that are
neither numbers nor text become BYTES of JSON text, and so does an answer without rows.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from serving.errors import InvalidInput
from serving.protocol.answers import Answer
from serving.protocol.oip.model import BYTES, DTYPES, ModelTensor
from serving.protocol.oip.request import InferRequest, WantedOutput
from serving.protocol.plan import DATATYPES
from serving.protocol.tensors import Array

FIRST_OUTPUT = "output_0"
_DATATYPES = {np.dtype(name): datatype for name, datatype in DATATYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTensor:
    """One output: numbers, or the texts of a BYTES tensor."""

    name: str
    shape: tuple[int, ...]
    data: Array | list[bytes]

    @property
    def datatype(self) -> str:
        """The protocol's name for its elements."""
        return BYTES if isinstance(self.data, list) else _DATATYPES[self.data.dtype]

    def to_bytes(self) -> bytes:
        """Its elements as binary data."""
        if isinstance(self.data, list):
            return b"".join(struct.pack("<I", len(item)) + item for item in self.data)
        return self.data.tobytes()

    def to_list(self) -> Any:
        """Its elements in one flat list, as JSON takes them."""
        if isinstance(self.data, list):
            return [item.decode() for item in self.data]
        return np.ascontiguousarray(self.data.reshape(-1))


def output_tensors(answer: Answer, declared: Sequence[ModelTensor]) -> list[OutputTensor]:
    """The answer's tensors; where the signature declares them, with its names and numbers."""
    if answer.kind in {"dict", "frame"}:
        by_name = {tensor.name: tensor for tensor in declared}
        return [
            _output(name, column, by_name.get(name))
            for name, column in zip(answer.names, answer.columns, strict=True)
        ]
    only = declared[0] if len(declared) == 1 else None
    name = FIRST_OUTPUT if only is None else only.name
    column = answer.columns[0]
    return [_output(name, [column] if answer.kind == "value" else column, only)]


def answer_of_predictions(predictions: Any) -> Answer:
    """What MLflow's server answered, as the kind of answer that its JSON looks like."""
    if isinstance(predictions, list):
        first = predictions[0] if predictions else None
        if isinstance(first, dict) and all(
            isinstance(row, dict) and row.keys() == first.keys() for row in predictions
        ):
            columns = tuple([row[name] for row in predictions] for name in first)
            return Answer("frame", tuple(first), columns)
        return Answer("list", (), (predictions,))
    if isinstance(predictions, dict) and predictions:
        values = list(predictions.values())
        if all(isinstance(value, list) for value in values) and len(set(map(len, values))) == 1:
            return Answer("dict", tuple(predictions), tuple(values))
    return Answer("value", (), (predictions,))


def _output(name: str, column: Any, declared: ModelTensor | None) -> OutputTensor:
    if isinstance(column, np.ndarray):
        return OutputTensor(name=name, shape=column.shape, data=column)
    items = list(column)
    if all(isinstance(item, str) for item in items):
        return _texts(name, [item.encode() for item in items])
    numbers = _numbers(items, declared)
    if numbers is not None:
        return OutputTensor(name=name, shape=numbers.shape, data=numbers)
    return _texts(name, [orjson.dumps(item, option=orjson.OPT_SERIALIZE_NUMPY) for item in items])


def _texts(name: str, items: list[bytes]) -> OutputTensor:
    return OutputTensor(name=name, shape=(len(items),), data=items)


def _numbers(items: list[Any], declared: ModelTensor | None) -> Array | None:
    """The items as numbers; None where some are none, or they are no regular array."""
    wanted = None if declared is None else DTYPES.get(declared.datatype)
    is_float = wanted is not None and wanted.startswith("float")
    try:
        # A missing number is NaN, but only where the signature says that these are numbers.
        free = np.array(items, dtype=np.float64) if is_float else np.array(items)
        if free.dtype not in _DATATYPES:
            return None
        cast = free if wanted is None else free.astype(wanted)
    except (ValueError, TypeError, OverflowError):
        return None
    return cast if is_float or np.array_equal(cast, free) else free


def write_reply(
    outputs: Sequence[OutputTensor], request: InferRequest, *, model_name: str, version: str
) -> tuple[bytes, int | None]:
    """The reply's body, and the length of its JSON where binary data follows that.

    Raises:
        InvalidInput: An output is asked for that the answer does not have.
    """
    described: list[Mapping[str, Any]] = []
    buffers: list[bytes] = []
    for output, is_binary in _chosen(outputs, request):
        head: dict[str, Any] = {
            "name": output.name,
            "datatype": output.datatype,
            "shape": output.shape,
        }
        if is_binary:
            buffers.append(output.to_bytes())
            head["parameters"] = {"binary_data_size": len(buffers[-1])}
        else:
            head["data"] = output.to_list()
        described.append(head)
    fields: dict[str, Any] = {"model_name": model_name, "model_version": version}
    if request.request_id:
        fields["id"] = request.request_id
    fields["outputs"] = described
    text = orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join([text, *buffers]), len(text)) if buffers else (text, None)


def _chosen(
    outputs: Sequence[OutputTensor], request: InferRequest
) -> list[tuple[OutputTensor, bool]]:
    if not request.outputs:
        return [(output, request.is_binary) for output in outputs]
    return [(_find(outputs, wanted), wanted.is_binary) for wanted in request.outputs]


def _find(outputs: Sequence[OutputTensor], wanted: WantedOutput) -> OutputTensor:
    for output in outputs:
        if output.name == wanted.name:
            return output
    names = ", ".join(f"'{output.name}'" for output in outputs)
    raise InvalidInput(f"The model has no output '{wanted.name}'. It answered {names}.")
