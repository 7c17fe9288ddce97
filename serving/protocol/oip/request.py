"""Reads an inference request: its JSON, and the bytes of binary tensors behind it.

    {"id": "7", "inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [...]}],
     "outputs": [{"name": "y", "parameters": {"binary_data": true}}], "parameters": {...}}

A tensor with the parameter `binary_data_size` has no `data`: its bytes follow the JSON, whose
length the header Inference-Header-Content-Length then gives.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from serving.errors import InvalidInput, ServingError
from serving.protocol import body as bodies
from serving.protocol.oip.model import BYTES, DTYPES
from serving.protocol.tensors import Array, to_array

MAX_TENSORS = 1000
_DTYPES = {datatype: np.dtype(name).newbyteorder("<") for datatype, name in DTYPES.items()}
RESERVED = frozenset({"priority", "sequence_start", "sequence_end", "headers"})
"""Parameters that Triton knows and that mean nothing here."""


class NotOffered(ServingError):
    """A part of the protocol that this server leaves out."""

    code = "NOT_IMPLEMENTED"
    status = 501


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTensor:
    """One input as it came; `data` is a JSON list, or the bytes of a binary tensor."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: memoryview | list[Any]

    @property
    def count(self) -> int:
        """Elements that the shape promises."""
        return math.prod(self.shape)

    def numbers(self) -> Array:
        """The elements of a tensor of plain numbers.

        Raises:
            InvalidInput: There are more or fewer than the shape says, or some are none.
        """
        dtype = _DTYPES[self.datatype]
        if isinstance(self.data, list):
            found = to_array(self.data, dtype)
            if found is None:
                raise InvalidInput(
                    f"The data of input '{self.name}' is no regular list of {self.datatype}."
                )
            self._check_count(found.size)
            return found.reshape(self.shape)
        needed = self.count * dtype.itemsize
        if len(self.data) != needed:
            raise InvalidInput(
                f"Input '{self.name}' has {len(self.data)} bytes of data; {self.datatype} of shape "
                f"{list(self.shape)} has {needed}."
            )
        if dtype.kind == "b":
            return np.not_equal(np.frombuffer(self.data, dtype=np.uint8), 0).reshape(self.shape)
        return np.frombuffer(self.data, dtype=dtype).reshape(self.shape)

    def elements(self) -> list[bytes]:
        """The elements of a BYTES tensor, in row-major order.

        Raises:
            InvalidInput: There are more or fewer than the shape says, or one is cut off.
        """
        if isinstance(self.data, list):
            found = [self._encoded(item) for item in _flat(self.data)]
        else:
            found = _length_prefixed(self.data, self.name)
        self._check_count(len(found))
        return found

    def texts(self) -> list[str]:
        """The elements of a BYTES tensor as text.

        Raises:
            InvalidInput: As for `elements`; or one is not UTF-8, or holds a NUL character.
        """
        try:
            found = [element.decode() for element in self.elements()]
        except UnicodeDecodeError as exc:
            raise InvalidInput(f"Input '{self.name}' holds text that is not UTF-8.") from exc
        if any("\0" in text for text in found):
            raise InvalidInput(f"Input '{self.name}' holds a NUL character.")
        return found

    def _encoded(self, item: object) -> bytes:
        if not isinstance(item, str):
            raise InvalidInput(f"The data of input '{self.name}' (BYTES) has to be strings.")
        try:
            return item.encode()
        except UnicodeEncodeError as exc:
            raise InvalidInput("The body holds text that is not valid Unicode.") from exc

    def _check_count(self, found: int) -> None:
        if found != self.count:
            raise InvalidInput(
                f"Input '{self.name}' has {found} elements; its shape {list(self.shape)} says "
                f"{self.count}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedOutput:
    """An output that the caller asks for."""

    name: str
    is_binary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """One inference request.

    Attributes:
        request_id: The caller's own, "" without one.
        outputs: Empty: all of them, binary or not as `is_binary` says.
        params: The model's parameters as JSON text, "" without any.
        timeout_s: What the caller gives it; None: as long as the endpoint does.
    """

    request_id: str
    inputs: tuple[GivenTensor, ...]
    outputs: tuple[WantedOutput, ...]
    is_binary: bool
    params: str
    timeout_s: float | None


def read_request(raw: bytes, header_length: int | None) -> InferRequest:
    """Read a request's body.

    Args:
        raw: The body, unpacked.
        header_length: Bytes of the JSON at its start; None: all of it is JSON.

    Raises:
        InvalidInput: It is not an inference request, or its parts do not fit together.
        NotOffered: It uses shared memory, sequences or classification.
    """
    if header_length is not None and header_length > len(raw):
        raise InvalidInput(
            f"Inference-Header-Content-Length is {header_length}, but the body has "
            f"{len(raw)} bytes."
        )
    fields = _read_json(raw if header_length is None else raw[:header_length])
    given, outputs = fields.get("inputs"), fields.get("outputs", [])
    if not isinstance(given, list) or not given or len(given) > MAX_TENSORS:
        raise InvalidInput("The request needs 'inputs': a list of tensors.")
    if not isinstance(outputs, list) or len(outputs) > MAX_TENSORS:
        raise InvalidInput("'outputs' has to be a list of the outputs that you want.")
    parameters = _parameters(fields, "The request")
    is_binary = parameters.pop("binary_data_output", False) is True
    data = memoryview(raw)[len(raw) if header_length is None else header_length :]
    tensors = []
    for item in given:
        tensor, data = _tensor(item, data)
        tensors.append(tensor)
    if len(data):
        raise InvalidInput(f"The body has {len(data)} bytes more than its inputs declare.")
    timeout_us = parameters.pop("timeout", None)
    return InferRequest(
        request_id=str(fields.get("id") or ""),
        inputs=tuple(tensors),
        outputs=tuple(_wanted(item, otherwise=is_binary) for item in outputs),
        is_binary=is_binary,
        params=_model_params(parameters),
        timeout_s=timeout_us / 1e6 if isinstance(timeout_us, int) and timeout_us > 0 else None,
    )


def _read_json(text: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:  # Python's parser also takes NaN and Infinity
            value = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise InvalidInput(f"The inference request is not valid JSON. Error: '{exc}'") from None
    if not isinstance(value, dict):
        raise InvalidInput("The inference request has to be a JSON object.")
    return value


def _tensor(item: object, rest: memoryview) -> tuple[GivenTensor, memoryview]:
    """The tensor, and what is left of the binary data behind it."""
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise InvalidInput("Each of 'inputs' needs a 'name', a 'shape', a 'datatype' and data.")
    name, datatype, shape = item["name"], item.get("datatype"), item.get("shape")
    if datatype != BYTES and datatype not in DTYPES:
        raise InvalidInput(
            f"Input '{name}' has the datatype {datatype!r}; known are {', '.join(DTYPES)}, BYTES."
        )
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise InvalidInput(f"The 'shape' of input '{name}' has to be a list of whole numbers.")
    parameters = _parameters(item, f"Input '{name}'")
    _refuse_shared_memory(parameters)
    size = parameters.get("binary_data_size")
    data: memoryview | list[Any]
    if size is None:
        data = item.get("data")  # type: ignore[assignment]  # judged in the next lines
        if not isinstance(data, list):
            raise InvalidInput(f"Input '{name}' has neither 'data' nor 'binary_data_size'.")
    elif type(size) is not int or not 0 <= size <= len(rest):
        raise InvalidInput(
            f"binary_data_size of input '{name}' is {size}, but {len(rest)} bytes are left."
        )
    else:
        data, rest = rest[:size], rest[size:]
    return GivenTensor(name=name, datatype=datatype, shape=tuple(shape), data=data), rest


def _wanted(item: object, *, otherwise: bool) -> WantedOutput:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise InvalidInput("Each of 'outputs' needs a 'name'.")
    parameters = _parameters(item, f"Output '{item['name']}'")
    _refuse_shared_memory(parameters)
    if parameters.get("classification"):
        raise NotOffered("The classification extension is not offered: ask for the output itself.")
    is_binary = parameters.get("binary_data", otherwise) is True
    return WantedOutput(name=item["name"], is_binary=is_binary)


def _parameters(fields: Mapping[str, Any], what: str) -> dict[str, Any]:
    found = fields.get("parameters") or {}
    if not isinstance(found, dict):
        raise InvalidInput(f"{what} has 'parameters' that are no JSON object.")
    return dict(found)


def _refuse_shared_memory(parameters: Mapping[str, Any]) -> None:
    if "shared_memory_region" in parameters:
        raise NotOffered("Shared memory is not offered: send tensors in the request's body.")


def _model_params(parameters: Mapping[str, Any]) -> str:
    """The model's parameters: those of `params` (JSON, as text or not) and each other one."""
    if parameters.get("sequence_id"):
        raise NotOffered("Sequences are not offered: every request stands for itself.")
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        if name == "params":
            found |= _params_object(value)
        elif name not in RESERVED and name != "sequence_id":
            found[name] = value
    return bodies.params_text(found) if found else ""


def _params_object(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, dict):
        raise InvalidInput("The parameter 'params' has to be a JSON object, or one as text.")
    return value


def _flat(data: list[Any]) -> list[Any]:
    """The items of nested lists, in order; not recursive, since the depth is the caller's."""
    level = data
    while any(isinstance(item, list) for item in level):
        level = [inner for item in level for inner in (item if isinstance(item, list) else [item])]
    return level


def _length_prefixed(data: memoryview, name: str) -> list[bytes]:
    found: list[bytes] = []
    position = 0
    while position < len(data):
        start = position + 4
        length = struct.unpack_from("<I", data, position)[0] if start <= len(data) else 0
        position = start + length
        if position > len(data):
            raise InvalidInput(f"The binary data of input '{name}' ends within an element.")
        found.append(bytes(data[start:position]))
    return found
