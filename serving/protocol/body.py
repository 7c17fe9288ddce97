"""Reads a scoring request's JSON: which input field it has, its value and the parameters.

MLflow's scoring protocol: exactly one of four input fields, and `params`. Other fields are ignored,
as MLflow's server does; words of the errors are MLflow's where it has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from serving.errors import InvalidInput

INPUT_FIELDS = ("dataframe_records", "dataframe_split", "inputs", "instances")
LLM_FIELDS = ("messages", "prompt", "input")
FORWARDED_FIELDS = frozenset((*INPUT_FIELDS, "params"))

_REQUIRED = (
    "The input must be a JSON dictionary with exactly one of the input fields "
    "{'dataframe_records', 'dataframe_split', 'inputs', 'instances'}"
)
_SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class Body:
    """A request that was read.

    Attributes:
        field: One of `INPUT_FIELDS`.
        value: The field's value, as JSON gives it.
        params: The parameters as JSON text with sorted keys, "" without any; requests with
            different texts never share a call of the model.
        is_plain: No field but the input field and `params` was there.
    """

    field: str
    value: Any
    params: str
    is_plain: bool


def read_body(raw: bytes) -> Body:
    """Read a request's body.

    Raises:
        InvalidInput: It is not UTF-8, not JSON, too deep, not an object, holds a NUL character, or
            has no or several input fields.
    """
    fields = parse_object(raw)
    found = [name for name in INPUT_FIELDS if name in fields]
    if len(found) != 1:
        raise InvalidInput(_field_message(fields))
    if fields.get("stream") is True:
        raise InvalidInput(
            "stream is true, but this endpoint serves a custom model, which answers in one piece. "
            "Leave stream out."
        )
    params = fields.get("params")
    return Body(
        field=found[0],
        value=fields[found[0]],
        params="" if params is None else params_text(params),
        is_plain=fields.keys() <= FORWARDED_FIELDS,
    )


def params_text(params: object) -> str:
    """Parameters as the JSON text that travels to the model.

    Raises:
        InvalidInput: They hold half of a surrogate pair or a number beyond 64 bits.
    """
    return dump(params, option=orjson.OPT_SORT_KEYS).decode()


def dump(value: object, *, option: int = 0) -> bytes:
    """Parsed JSON as text again.

    Raises:
        InvalidInput: It holds what strict JSON in UTF-8 cannot: half of a surrogate pair.
    """
    try:
        return orjson.dumps(value, option=option)
    except TypeError:
        pass
    try:  # whole numbers beyond 64 bits are left to Python
        sort_keys = bool(option & orjson.OPT_SORT_KEYS)
        return json.dumps(value, ensure_ascii=False, sort_keys=sort_keys).encode()
    except (ValueError, RecursionError) as exc:
        raise InvalidInput("The body holds text that is not valid Unicode.") from exc


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
        what = "a list" if isinstance(value, list) else f"unexpected input type '{type(value)}'"
        raise InvalidInput(f"Invalid input. {_REQUIRED}. Received {what}.")
    if b"\\u0000" in raw and _holds_nul(value):
        raise InvalidInput("The body holds a NUL character.")
    return value


def _parse_slowly(raw: bytes) -> Any:
    """Accept what MLflow's server accepts beyond strict JSON, and find the words of the error."""
    try:
        return json.loads(raw.decode("utf-8"))
    except RecursionError:
        raise InvalidInput("The body is nested too deeply.") from None
    except UnicodeDecodeError as exc:
        raise InvalidInput(
            f"Invalid input. Ensure that input is a valid JSON formatted string. It is not UTF-8: "
            f"{exc.reason} at byte {exc.start}."
        ) from None
    except ValueError as exc:
        shown = raw[:_SHOWN_BYTES].decode("utf-8", "replace").replace("\x00", "\ufffd")
        raise InvalidInput(
            f"Invalid input. Ensure that input is a valid JSON formatted string. Error: '{exc}'\n"
            f"Input: \n{shown}{'...' if len(raw) > _SHOWN_BYTES else ''}\n"
        ) from None


def _holds_nul(value: Any) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if "\x00" in item:
                return True
        elif isinstance(item, dict):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return False


def _field_message(fields: Mapping[str, Any]) -> str:
    names = list(fields)[:20]
    if not any(name in fields for name in INPUT_FIELDS):
        chat = [name for name in LLM_FIELDS if name in fields]
        if chat:
            return (
                f"Received {chat[0]!r}, which is for chat, completion and embedding endpoints; "
                f"this endpoint serves a custom model. {_REQUIRED}."
            )
    return f"{_REQUIRED}. Received dictionary with input fields: {names}."
