"""An inference request's tensors as what the model's codec takes, or as MLflow's scoring JSON.

Where the model's inputs travel as tensors anyway (see `serving.protocol.plan`), binary data goes to
the replica as it came. Models that read JSON (no signature; dates, binary, nested or optional
columns) and MLflow's own server get the same request in MLflow's words.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from serving.errors import InvalidInput
from serving.protocol import body as bodies
from serving.protocol.codec import Decoded, EntityCodec
from serving.protocol.columns import pack_text
from serving.protocol.oip.model import (
    BYTES,
    DTYPES,
    WHOLE_REQUEST,
    Element,
    ModelTensor,
    model_inputs,
)
from serving.protocol.oip.request import GivenTensor, InferRequest
from serving.protocol.plan import InputKind
from serving.protocol.tensors import Array, fits

LISTED_INPUTS = 20


def decode(
    request: InferRequest, codec: EntityCodec, signature: Mapping[str, Any] | None
) -> Decoded:
    """The request as it goes to a Triton replica.

    Raises:
        InvalidInput: It does not fit the model's signature.
    """
    if codec.plan.kind is InputKind.JSON:
        return codec.decode(scoring_body(request, signature))
    wanted = model_inputs(signature)
    found = match(request.inputs, wanted)
    arrays = [_array(found[tensor.name], tensor) for tensor in wanted]
    decoded = codec.decode_arrays(arrays, request.params)
    if not len(arrays[0]):
        raise InvalidInput("The inputs have no rows.")
    return decoded


def scoring_body(request: InferRequest, signature: Mapping[str, Any] | None) -> bytes:
    """The request as MLflow's scoring JSON.

    Raises:
        InvalidInput: It does not fit the model's signature.
    """
    wanted = model_inputs(signature)
    whole = _whole_request(request.inputs, wanted)
    if whole is not None:
        fields = bodies.parse_object(whole)
    elif not wanted:
        fields = {"inputs": _unsigned(request.inputs)}
    else:
        found = match(request.inputs, wanted)
        present = [tensor for tensor in wanted if tensor.name in found]
        if wanted[0].is_column:
            fields = {"dataframe_split": _table(found, present)}
        else:
            fields = {"inputs": _named(found, present)}
    if request.params:
        fields["params"] = json.loads(request.params)
    try:
        return orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        return bodies.dump(fields)  # whole numbers beyond 64 bits; it has words for the rest


def match(given: Sequence[GivenTensor], wanted: Sequence[ModelTensor]) -> dict[str, GivenTensor]:
    """Each given tensor under the name of the model's input, datatypes and shapes checked.

    Raises:
        InvalidInput: One is missing, unknown, given twice, or of another datatype or shape.
    """
    if len(wanted) == len(given) == 1 and wanted[0].key is None:
        found = {wanted[0].name: given[0]}  # without a name of its own, any will do
    else:
        found = {tensor.name: tensor for tensor in given}
    if len(found) != len(given):
        raise InvalidInput("An input is given twice.")
    known = {tensor.name for tensor in wanted}
    for name in found:
        if name not in known:
            raise InvalidInput(f"The model has no input '{name}'. {_inputs_of(wanted)}")
    for tensor in wanted:
        if tensor.name in found:
            _check(found[tensor.name], tensor)
        elif tensor.is_required:
            raise InvalidInput(f"Input '{tensor.name}' is missing. {_inputs_of(wanted)}")
    return found


def _inputs_of(wanted: Sequence[ModelTensor]) -> str:
    listed = ", ".join(str(tensor) for tensor in wanted[:LISTED_INPUTS])
    more = f" and {len(wanted) - LISTED_INPUTS} more" if len(wanted) > LISTED_INPUTS else ""
    return f"Its inputs are {listed}{more}."


def _check(given: GivenTensor, wanted: ModelTensor) -> None:
    if given.datatype != wanted.datatype and not _widens(given, wanted):
        raise InvalidInput(
            f"Input '{wanted.name}' is {given.datatype}; the model takes {wanted.datatype}."
        )
    shape = given.shape
    if wanted.is_column:
        is_right = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
    else:
        is_right = len(shape) == len(wanted.shape) and all(
            want in (-1, have) for want, have in zip(wanted.shape, shape, strict=True)
        )
    if not is_right:
        either = " or [-1, 1]" if wanted.is_column else ""
        raise InvalidInput(
            f"Input '{wanted.name}' has the shape {list(shape)}; the model takes "
            f"{list(wanted.shape)}{either}."
        )


def _widens(given: GivenTensor, wanted: ModelTensor) -> bool:
    """Whether a column of these numbers is one of the wanted numbers too, as for MLflow."""
    if not wanted.is_column or BYTES in (given.datatype, wanted.datatype):
        return False
    return np.can_cast(DTYPES[given.datatype], DTYPES[wanted.datatype], "safe")


def _array(given: GivenTensor, wanted: ModelTensor) -> Array:
    """The array that the codec takes for this input."""
    if wanted.element is not Element.NUMBER:
        return pack_text(given.texts())
    array = given.numbers().astype(DTYPES[wanted.datatype], copy=False)
    array = array.reshape(-1) if wanted.is_column else array
    if not fits(array, wanted.shape):
        raise InvalidInput(f"Input '{wanted.name}' does not fit {list(wanted.shape)}.")
    return array


# ---------------------------------------------------------------- MLflow's JSON


def _whole_request(given: Sequence[GivenTensor], wanted: Sequence[ModelTensor]) -> bytes | None:
    """The JSON of the one tensor `json`, where that is what was sent."""
    only = given[0]
    if len(given) != 1 or only.name != WHOLE_REQUEST.name or only.datatype != BYTES:
        return None
    if any(tensor.name == only.name for tensor in wanted):
        return None
    elements = only.elements()
    if len(elements) != 1:
        raise InvalidInput("Input 'json' has to be one element: a scoring request's JSON.")
    return elements[0]


def _unsigned(given: Sequence[GivenTensor]) -> Any:
    """What a model without a signature gets: an array, or a dict of named ones."""
    if len(given) == 1:
        return _value(given[0])
    names = {tensor.name for tensor in given}
    if len(names) != len(given):
        raise InvalidInput("An input is given twice.")
    return {tensor.name: _value(tensor) for tensor in given}


def _named(found: Mapping[str, GivenTensor], wanted: Sequence[ModelTensor]) -> Any:
    if len(wanted) == 1 and wanted[0].key is None:
        return _value(found[wanted[0].name])
    return {tensor.key or tensor.name: _value(found[tensor.name]) for tensor in wanted}


def _value(given: GivenTensor) -> Any:
    if given.datatype != BYTES:
        return np.ascontiguousarray(given.numbers())
    texts = np.array(given.texts(), dtype=object).reshape(given.shape)
    return texts.tolist()


def _table(found: Mapping[str, GivenTensor], wanted: Sequence[ModelTensor]) -> dict[str, Any]:
    columns = [_column(found[tensor.name], tensor) for tensor in wanted]
    if len({len(column) for column in columns}) > 1:
        counts = ", ".join(f"'{t.name}' {len(c)}" for t, c in zip(wanted, columns, strict=True))
        raise InvalidInput(f"All inputs need the same number of rows: {counts}.")
    table: dict[str, Any] = {"data": [list(row) for row in zip(*columns, strict=True)]}
    if all(tensor.key is not None for tensor in wanted):
        table["columns"] = [tensor.key for tensor in wanted]
    return table


def _column(given: GivenTensor, wanted: ModelTensor) -> list[Any]:
    match wanted.element:
        case Element.NUMBER:
            numbers: list[Any] = given.numbers().reshape(-1).tolist()
            return numbers
        case Element.BINARY:
            return [base64.b64encode(element).decode() for element in given.elements()]
        case Element.JSON:
            return [_parsed(text, wanted.name) for text in given.texts()]
    return given.texts()


def _parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(f"An element of input '{name}' is not valid JSON.") from None
