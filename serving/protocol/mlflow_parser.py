"""MLflow's own parsing and schema enforcement, for what the fast paths do not take.

Slow (milliseconds): call it in a thread. MLflow takes seconds to import; `import_mlflow` does so
ahead of the first use.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Mapping
from typing import Any

from serving.errors import InputRefused, InvalidInput
from serving.protocol.body import Format
from serving.protocol.plan import input_specs
from serving.protocol.words import SCHEMA_CODE, failed_to_predict, shorten

_CSV_WORDS = (
    "Failed to parse input as a Pandas DataFrame. Ensure that the input is a valid CSV-formatted"
    " Pandas DataFrame produced using the `pandas.DataFrame.to_csv()` method. Error: '{}'"
)
_PARQUET_WORDS = (
    "Failed to parse input as a Pandas DataFrame. Ensure that the input is a valid Parquet"
    " Pandas DataFrame produced using the `pandas.DataFrame.to_parquet()` method. Error: '{}'"
)

_import_lock = threading.Lock()


def import_mlflow() -> None:
    """Import what the other functions need now, so that no request waits for it."""
    with _import_lock:
        import mlflow.models.utils
        import mlflow.utils.proto_json_utils  # noqa: F401 - imported for its own sake


def parse_fields(signature: Mapping[str, Any], field: str, value: Any) -> Any:
    """What MLflow's server would hand to the model for one input field of a JSON body.

    Gives an ndarray, a dict of them, or a DataFrame.

    Raises:
        InvalidInput: In MLflow's words and with its code.
    """
    parser, schema = _prepare(signature)
    try:
        if field in {"inputs", "instances"}:
            data = parser.parse_tf_serving_input({field: value}, schema=schema)
        else:
            orient = field.removeprefix("dataframe_")
            data = parser.dataframe_from_parsed_json(value, pandas_orient=orient, schema=schema)
    except parser.MlflowException as exc:
        raise _refused(exc.message, exc.error_code) from exc
    # MLflow's server answers 500 where its parser did not foresee a body.
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as exc:
        message = f"Invalid input. The data does not fit the model's signature. Error: {exc!r}"
        raise InvalidInput(shorten(message)) from exc
    return _enforce(data, schema)


def parse_table(signature: Mapping[str, Any], raw: bytes, form: Format) -> Any:
    """What MLflow's server would hand to the model for a table as CSV or Parquet.

    Raises:
        InvalidInput: In MLflow's words and with its code.
    """
    import pandas as pd

    _, schema = _prepare(signature)
    words = _PARQUET_WORDS
    try:
        if form is Format.PARQUET:
            data = pd.read_parquet(io.BytesIO(raw))
        else:
            text = io.StringIO(raw.decode("utf-8"))
            words = _CSV_WORDS
            types = dict(zip(schema.input_names(), schema.pandas_types(), strict=False))
            data = pd.read_csv(text, dtype=types)
    except UnicodeDecodeError as exc:
        message = f"Ensure that input is a valid UTF-8 encoded string. Error: '{exc!r}'"
        raise InvalidInput(shorten(f"Invalid input. {message}")) from exc
    except Exception as exc:  # as MLflow does: pandas raises what it likes
        raise InvalidInput(shorten(words.format(exc))) from exc
    return _enforce(data, schema)


def _prepare(signature: Mapping[str, Any]) -> tuple[Any, Any]:
    with _import_lock:
        from mlflow.types import Schema
        from mlflow.utils import proto_json_utils

    return proto_json_utils, Schema.from_json(json.dumps(input_specs(signature)))


def _enforce(data: Any, schema: Any) -> Any:
    with _import_lock:
        from mlflow.models.utils import _enforce_schema

    try:
        return _enforce_schema(data, schema)
    except Exception as exc:  # MLflow itself words every failure here this way
        reason = f"Failed to enforce schema of data '{data}' with schema '{schema}'. Error: {exc}"
        raise InputRefused(shorten(failed_to_predict(data, reason))) from exc


def _refused(message: str, code: str) -> InvalidInput:
    kind = InputRefused if code == SCHEMA_CODE else InvalidInput
    return kind(shorten(message))
