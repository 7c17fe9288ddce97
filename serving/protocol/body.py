"""Reads a scoring request: its format, which input field it has, its value and the parameters.

MLflow's scoring protocol: JSON with exactly one of four input fields and `params`, or a table as
CSV or Parquet. Other fields are ignored, as MLflow's server does; words of the errors are MLflow's
where it has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from serving.errors import InvalidInput

INPUT_FIELDS = ("dataframe_records", "dataframe_split", "inputs", "instances")
LLM_FIELDS = ("messages", "prompt", "input")
FORWARDED_FIELDS = frozenset((*INPUT_FIELDS, "params"))

# The following are MLflow's words (mlflow.pyfunc.scoring_server).
_REQUIRED = (
    "The input must be a JSON dictionary with exactly one of the input fields "
    "{'dataframe_records', 'dataframe_split', 'inputs', 'instances'}"
)
_CHANGED = (
    "IMPORTANT: The MLflow Model scoring protocol has changed in MLflow version 2.0. If you are"
    " seeing this error, you are likely using an outdated scoring request format. To resolve the"
    " error, either update your request format or adjust your MLflow Model's requirements file to"
    " specify an older version of MLflow (for example, change the 'mlflow' requirement specifier"
    " to 'mlflow==1.30.0'). If you are making a request using the MLflow client"
    " (e.g. via `mlflow.pyfunc.spark_udf()`), upgrade your MLflow client to a version >= 2.0 in"
    " order to use the new request format. For more information about the updated MLflow"
    " Model scoring protocol in MLflow 2.0, see"
    " https://mlflow.org/docs/latest/models.html#deploy-mlflow-models."
)
_SHOWN_BYTES = 500
_LARGEST = 2.0**63
"""From here on a float may be a whole number that the quick parser could not hold."""


class Format(StrEnum):
    """How a request's body is written; the value is its media type."""

    JSON = "application/json"
    CSV = "text/csv"
    PARQUET = "application/vnd.apache.parquet"


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON request that was read.

    Attributes:
        field: One of `INPUT_FIELDS`.
        value: The field's value, as JSON gives it; whole numbers beyond 64 bits are floats.
        params: The parameters as JSON text, "" without any; requests with different texts never
            share a call of the model.
        is_plain: No field but the input field and `params` was there.
    """

    field: str
    value: Any
    params: str
    is_plain: bool


def format_of(content_type: str | None) -> Format:
    """A body's format by its `Content-Type`; JSON without one.

    MLflow's server answers 415 for the others, which clients of this API take for a fault that
    may pass, so it is a 400 here, in the same words.

    Raises:
        InvalidInput: MLflow's server does not take such bodies.
    """
    if content_type is None or content_type == Format.JSON:
        return Format.JSON
    kind, *pairs = (part.strip() for part in content_type.split(";"))
    parameters = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
    if parameters.pop("charset", "utf-8").lower() != "utf-8":
        raise InvalidInput("The scoring server only supports UTF-8")
    if parameters:
        raise InvalidInput(
            f"Unrecognized content type parameters: {', '.join(parameters)}. {_CHANGED}"
        )
    try:
        return Format(kind)
    except ValueError:
        raise InvalidInput(
            "This predictor only supports the following content types: Types: "
            f"{[str(known) for known in (Format.CSV, Format.JSON, Format.PARQUET)]}."
            f" Got '{content_type}'."
        ) from None


def read_body(raw: bytes) -> Body:
    """Read a JSON request's body.

    Raises:
        InvalidInput: It is not JSON, too deep, not an object, holds a NUL character, has no or
            several input fields, or is for another kind of model.
    """
    fields = parse_object(raw)
    _refuse_chat(fields)
    found = [name for name in INPUT_FIELDS if name in fields]
    if len(found) != 1:
        given = [name for name in fields if name in INPUT_FIELDS]
        raise InvalidInput(
            f"{_REQUIRED}. Received dictionary with input fields: {given}. {_CHANGED}"
        )
    return Body(
        field=found[0],
        value=fields[found[0]],
        params=_params_text(fields.get("params"), raw),
        is_plain=fields.keys() <= FORWARDED_FIELDS,
    )


def params_text(params: object) -> str:
    """Parameters as JSON text.

    Raises:
        TypeError: They hold what strict JSON in 64 bits and UTF-8 cannot.
    """
    return orjson.dumps(params).decode()


def _params_text(params: object, raw: bytes) -> str:
    if params is None:
        return ""
    if not any(isinstance(item, float) and not abs(item) < _LARGEST for item in _items(params)):
        with suppress(TypeError):
            return params_text(params)
    # Not a number, infinity, a long whole number or half of a surrogate pair.
    return json.dumps(parse_exactly(raw)["params"])


def dump(value: object) -> bytes:
    """Parsed JSON as text again."""
    try:
        return orjson.dumps(value)
    except TypeError:  # whole numbers beyond 64 bits, half of a surrogate pair
        return json.dumps(value).encode()


def parse_object(raw: bytes) -> dict[str, Any]:
    """The body as a JSON object; NaN and Infinity are read as Python's `json` does.

    Raises:
        InvalidInput: It is anything else.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = _parse_slowly(raw)
    if not isinstance(value, dict):
        what = (
            "Received a list."
            if isinstance(value, list)
            else f"Received unexpected input type '{type(value)}."
        )
        raise InvalidInput(f"Invalid input. {_REQUIRED}. {what}")
    if b"\\u0000" in raw and _holds_nul(value):
        raise InvalidInput("The body holds a NUL character.")
    return value


def parse_exactly(raw: bytes) -> dict[str, Any]:
    """A body that `parse_object` took, with whole numbers of any length."""
    fields: dict[str, Any] = json.loads(raw)
    return fields


def keep_forwarded(raw: bytes) -> bytes:
    """A body that `parse_object` took, with those fields only that MLflow's server knows."""
    fields = parse_exactly(raw)
    return json.dumps({k: v for k, v in fields.items() if k in FORWARDED_FIELDS}).encode()


def _parse_slowly(raw: bytes) -> Any:
    """Accept what MLflow's server accepts beyond strict JSON, and find the words of the error."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise InvalidInput("The body is nested too deeply.") from None
    except ValueError as exc:
        # MLflow shows the whole body, a UnicodeDecodeError even twice.
        is_short = len(raw) <= _SHOWN_BYTES
        error = repr(exc) if is_short or isinstance(exc, json.JSONDecodeError) else str(exc)
        shown = repr(raw) if is_short else f"{raw[:_SHOWN_BYTES]!r}..."
        raise InvalidInput(
            "Invalid input. Ensure that input is a valid JSON formatted string. Error: "
            f"'{error}'\nInput: \n{shown}\n"
        ) from None


def _holds_nul(value: Any) -> bool:
    return any(isinstance(item, str) and "\x00" in item for item in _items(value))


def _items(value: Any) -> list[Any]:
    """All keys and values at any depth."""
    found = [value]
    for item in found:  # grows while it is read
        if isinstance(item, dict):
            found.extend(item.keys())
            found.extend(item.values())
        elif isinstance(item, list):
            found.extend(item)
    return found


def _refuse_chat(fields: Mapping[str, Any]) -> None:
    """MLflow hands bodies with such fields to the model whole; they are for other endpoints."""
    chat = [name for name in LLM_FIELDS if name in fields]
    if chat:
        raise InvalidInput(
            f"Received {chat[0]!r}, which is for chat, completion and embedding endpoints; "
            f"this endpoint serves a custom model. {_REQUIRED}."
        )
    if fields.get("stream") is True:
        raise InvalidInput(
            "stream is true, but this endpoint serves a custom model, which answers in one piece. "
            "Leave stream out."
        )
