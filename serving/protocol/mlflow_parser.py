"""MLflow's own parsing and schema enforcement, for what the fast paths do not take.

Slow (milliseconds): call it in a thread. MLflow takes seconds to import; `import_mlflow` does so
ahead of the first use.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from serving.errors import InvalidInput
from serving.protocol.plan import InputKind, InputPlan, input_specs
from serving.protocol.tensors import is_lossless

MAX_MESSAGE_LENGTH = 4000

_import_lock = threading.Lock()


def import_mlflow() -> None:
    """Import what `parse_and_enforce` needs now, so that no request waits for it."""
    with _import_lock:
        import mlflow.models.utils
        import mlflow.utils.proto_json_utils  # noqa: F401 - imported for its own sake


def parse_and_enforce(signature: Mapping[str, Any], plan: InputPlan, field: str, value: Any) -> Any:
    """What MLflow's server would hand to the model: an ndarray, a dict of them, or a DataFrame.

    Raises:
        InvalidInput: In MLflow's words.
    """
    with _import_lock:
        from mlflow.exceptions import MlflowException
        from mlflow.models.utils import _enforce_schema
        from mlflow.types import Schema
        from mlflow.utils import proto_json_utils

    schema = Schema.from_json(json.dumps(input_specs(signature)))
    try:
        if field in {"inputs", "instances"}:
            data = proto_json_utils.parse_tf_serving_input({field: value}, schema=schema)
        else:
            data = proto_json_utils.dataframe_from_parsed_json(
                value, pandas_orient=field.removeprefix("dataframe_"), schema=schema
            )
    except MlflowException as exc:
        raise InvalidInput(exc.message[:MAX_MESSAGE_LENGTH]) from exc
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as exc:
        raise InvalidInput(
            f"Invalid input. The data does not fit the model's signature. Error: {exc!r}"[
                :MAX_MESSAGE_LENGTH
            ]
        ) from exc
    try:
        _refuse_losses(plan, field, value)
        return _enforce_schema(data, schema)
    except Exception as exc:  # MLflow itself words every failure here this way
        message = f"Failed to enforce schema of data '{data}' with schema '{schema}'. Error: {exc}"
        raise InvalidInput(message[:MAX_MESSAGE_LENGTH]) from exc


def _refuse_losses(plan: InputPlan, field: str, value: Any) -> None:
    """MLflow's parser cuts 1.5 to 1 for a whole-number input before its enforcement can object."""
    for planned in plan.inputs:
        dtype = np.dtype(planned.dtype)
        if dtype.kind not in "iub":
            continue
        given = _values_of(field, value, planned.key, plan.kind)
        if given is None:
            continue
        try:
            cast = np.array(given, dtype=dtype)
            is_safe = is_lossless(given, cast)
        except (ValueError, TypeError, OverflowError):
            continue  # the enforcement finds better words
        if not is_safe:
            found = np.array(given).dtype
            what = f"input '{planned.key}'" if planned.key else "input"
            raise ValueError(
                f"dtype of {what} {found} does not match expected dtype {dtype}: the cast would "
                "change values."
            )


def _values_of(field: str, value: Any, key: str | None, kind: InputKind) -> Any:
    """All values of one input, however the request spells it; None where it is not to be found."""
    if field == "dataframe_split" and isinstance(value, dict):
        columns, data = value.get("columns") or [], value.get("data") or []
        if key not in columns:
            return None
        position = columns.index(key)
        return [row[position] for row in data if isinstance(row, list) and len(row) > position]
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        return [row[key] for row in value if key in row]
    return value if kind is InputKind.TENSORS else None
