"""How a model's signature becomes Triton inputs.

There are three ways for a request's data to reach the model's process:

- `TENSORS`: the signature has tensors of plain numbers. Each becomes one Triton input with the
  batch axis first; the model gets an ndarray (unnamed) or a dict of ndarrays.
- `COLUMNS`: the signature has named, required columns of plain numbers, truth values or text. Each
  becomes one Triton input `[N, 1]`, text becomes bytes `[N, W]`; the model gets a DataFrame.
- `JSON`: anything else. One input of bytes `[N, W]` carries the request's JSON, cut into N equal
  pieces so that Triton's batches still count rows; MLflow's own parser in the model's environment
  reads it.

Text and JSON travel as UINT8 because Triton's string tensors break under NumPy 2. All inputs are
ragged: Triton then queues requests of different shapes together and the shim groups them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

DATATYPES = {
    "bool": "BOOL",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}
"""NumPy's names of plain dtypes to Triton's."""

COLUMN_DTYPES = {
    "boolean": "bool",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "string": "str",
}
"""MLflow's plain column types to NumPy's names."""

OUTPUT_NAME = "out"
"""The one output of every model: UINT8, dims [-1], `[1, L]` for each request."""

JSON_INPUT = "json"

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


class InputKind(StrEnum):
    """Which of the three ways a model's requests take."""

    TENSORS = "tensors"
    COLUMNS = "columns"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInput:
    """One Triton input.

    Attributes:
        name: Triton's name for it.
        key: The model's name for it; None for an unnamed tensor.
        dtype: NumPy's name of the elements as the model gets them; "str" for text.
        datatype: Triton's name of the elements on the wire ("FP32"); `TYPE_<datatype>` in
            config.pbtxt.
        dims: Without the batch axis, as config.pbtxt wants them.
        shape: As in the signature, the batch axis first, -1 for any length.
    """

    name: str
    key: str | None
    dtype: str
    datatype: str
    dims: tuple[int, ...]
    shape: tuple[int, ...]
    allow_ragged_batch: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPlan:
    """How requests for one model travel.

    Attributes:
        is_joinable: Whether rows of several requests may share a call of the model. False where
            the signature fixes the first axis: such requests are run one by one.
    """

    kind: InputKind
    inputs: tuple[PlannedInput, ...]
    is_joinable: bool = True

    def to_json(self) -> dict[str, Any]:
        """The plan as the shim reads it."""
        return {
            "kind": self.kind.value,
            "is_joinable": self.is_joinable,
            "inputs": [
                {
                    "name": i.name,
                    "key": i.key,
                    "dtype": i.dtype,
                    "datatype": i.datatype,
                    "dims": list(i.dims),
                    "shape": list(i.shape),
                }
                for i in self.inputs
            ],
        }


def plan_inputs(signature: Mapping[str, Any] | None) -> InputPlan:
    """Decide how requests for a model with this signature travel.

    Args:
        signature: MLflow's `ModelSignature.to_dict()`, whose values are JSON text; None without
            a signature.
    """
    specs = input_specs(signature)
    if not specs:
        return _json_plan(is_joinable=True)
    if all(spec.get("type") == "tensor" for spec in specs):
        return _tensor_plan(specs) or _json_plan(is_joinable=_have_open_rows(specs))
    return _column_plan(specs) or _json_plan(is_joinable=True)


def input_specs(signature: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The signature's inputs as MLflow's dictionaries; empty without any."""
    inputs = (signature or {}).get("inputs")
    if isinstance(inputs, (str, bytes)):
        inputs = json.loads(inputs)
    return list(inputs or [])


def _json_plan(*, is_joinable: bool) -> InputPlan:
    wire = PlannedInput(
        name=JSON_INPUT, key=None, dtype="json", datatype="UINT8", dims=(-1,), shape=(-1, -1)
    )
    return InputPlan(kind=InputKind.JSON, inputs=(wire,), is_joinable=is_joinable)


def _have_open_rows(specs: Iterable[Mapping[str, Any]]) -> bool:
    return all(spec["tensor-spec"]["shape"][:1] == [-1] for spec in specs)


def _tensor_plan(specs: list[dict[str, Any]]) -> InputPlan | None:
    if not _have_open_rows(specs):
        return None
    if any(spec["tensor-spec"]["dtype"] not in DATATYPES for spec in specs):
        return None
    names = _wire_names(spec.get("name") for spec in specs)
    return InputPlan(
        kind=InputKind.TENSORS,
        inputs=tuple(
            PlannedInput(
                name=name,
                key=spec.get("name"),
                dtype=spec["tensor-spec"]["dtype"],
                datatype=DATATYPES[spec["tensor-spec"]["dtype"]],
                # Triton wants at least one dimension beside the batch: a row of one number.
                dims=(-1,) * (len(spec["tensor-spec"]["shape"]) - 1) or (1,),
                shape=tuple(spec["tensor-spec"]["shape"]),
            )
            for name, spec in zip(names, specs, strict=True)
        ),
    )


def _column_plan(specs: list[dict[str, Any]]) -> InputPlan | None:
    for spec in specs:
        is_required = spec.get("required", True) is not False
        if not spec.get("name") or not is_required or spec.get("type") not in COLUMN_DTYPES:
            return None
    names = _wire_names(spec["name"] for spec in specs)
    return InputPlan(
        kind=InputKind.COLUMNS,
        inputs=tuple(
            _planned_column(name, spec["name"], COLUMN_DTYPES[spec["type"]])
            for name, spec in zip(names, specs, strict=True)
        ),
    )


def _planned_column(name: str, key: str, dtype: str) -> PlannedInput:
    is_text = dtype == "str"
    return PlannedInput(
        name=name,
        key=key,
        dtype=dtype,
        datatype="UINT8" if is_text else DATATYPES[dtype],
        dims=(-1,) if is_text else (1,),
        shape=(-1,),
    )


def _wire_names(keys: Iterable[str | None]) -> list[str]:
    """The model's own names where Triton takes them, else ones made by position."""
    names: list[str] = []
    for position, key in enumerate(keys):
        name = "input" if key is None else key
        if not _PLAIN_NAME.fullmatch(name) or name in {OUTPUT_NAME, *names}:
            name = f"input_{position}"
        while name in names:
            name += "_"
        names.append(name)
    return names
