"""A model's own inputs and outputs as the protocol names them, from its MLflow signature.

Each tensor and each column of the signature is one tensor here. Plain numbers and truth values
have the datatype of the same name; everything else is BYTES: text as it is, binary columns as their
bytes, dates as ISO 8601 text, nested values as JSON text, one element for each row. A column has
the shape `[-1]`. A model without a signature has one input, `json`: a scoring request's JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from serving.protocol.plan import COLUMN_DTYPES, DATATYPES, JSON_INPUT

BYTES = "BYTES"
DTYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}
"""The protocol's datatypes of plain elements to NumPy's names."""


class Element(StrEnum):
    """What one element of a tensor is."""

    NUMBER = "number"  # of the tensor's datatype
    TEXT = "text"
    BINARY = "binary"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTensor:
    """One input or output.

    Attributes:
        name: The protocol's name for it.
        key: The model's name for it; None where the signature gives none.
        shape: The batch axis first, -1 for any length.
        is_column: A column of a table: `[N, 1]` is taken for `[N]`.
    """

    name: str
    key: str | None
    datatype: str
    shape: tuple[int, ...]
    element: Element
    is_column: bool
    is_required: bool = True

    def to_json(self) -> dict[str, Any]:
        """As the model's metadata lists it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    def __str__(self) -> str:
        return f"'{self.name}' ({self.datatype} {list(self.shape)})"


WHOLE_REQUEST = ModelTensor(
    name=JSON_INPUT,
    key=None,
    datatype=BYTES,
    shape=(1,),
    element=Element.JSON,
    is_column=False,
)
"""One element: the JSON of a scoring request, such as `{"inputs": [[1, 2]]}`."""


def model_inputs(signature: Mapping[str, Any] | None) -> tuple[ModelTensor, ...]:
    """The model's inputs in the signature's order; empty without a signature."""
    return _tensors((signature or {}).get("inputs"), "input")


def model_outputs(signature: Mapping[str, Any] | None) -> tuple[ModelTensor, ...]:
    """The model's outputs in the signature's order; empty where it names none."""
    return _tensors((signature or {}).get("outputs"), "output")


def _tensors(specs: str | Sequence[Mapping[str, Any]] | None, word: str) -> tuple[ModelTensor, ...]:
    """One side of a signature: the JSON text that MLflow makes of it, or what that says."""
    return _read_tensors(specs if isinstance(specs, str) else json.dumps(specs), word)


@lru_cache(maxsize=1024)
def _read_tensors(text: str, word: str) -> tuple[ModelTensor, ...]:
    """Kept, since every request of a model asks."""
    specs = json.loads(text) or []
    return tuple(_tensor(spec, f"{word}_{position}") for position, spec in enumerate(specs))


def _tensor(spec: Mapping[str, Any], otherwise: str) -> ModelTensor:
    key = spec.get("name")
    is_column = spec.get("type") != "tensor"
    if is_column:
        dtype = COLUMN_DTYPES.get(str(spec.get("type")), "")
        shape: tuple[int, ...] = (-1,)
        element = _element_of_column(str(spec.get("type")))
    else:
        dtype = spec["tensor-spec"]["dtype"]
        shape = tuple(spec["tensor-spec"]["shape"])
        element = Element.NUMBER if dtype in DATATYPES else Element.TEXT
    return ModelTensor(
        name=otherwise if key is None else str(key),
        key=None if key is None else str(key),
        datatype=DATATYPES.get(dtype, BYTES),
        shape=shape,
        element=element,
        is_column=is_column,
        is_required=spec.get("required", True) is not False,
    )


def _element_of_column(kind: str) -> Element:
    if kind in {"string", "datetime"}:
        return Element.TEXT
    if kind == "binary":
        return Element.BINARY
    return Element.NUMBER if kind in COLUMN_DTYPES else Element.JSON
