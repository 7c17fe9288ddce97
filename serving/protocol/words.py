"""The words of MLflow's scoring server for a failed prediction, and how a replica passes them on.

The shim has the same words (`serving/triton/shim/model.py`): it runs where nothing of ours can be
imported.
"""

from __future__ import annotations

import re

SCHEMA_CODE = "INVALID_PARAMETER_VALUE"
"""MLflow's code where data or parameters do not fit the signature."""

UNEXPECTED = (
    "Encountered an unexpected error while evaluating the model. Verify that the serialized input "
    "Dataframe is compatible with the model for inference."
)
MAX_MESSAGE_LENGTH = 4000
_KEPT_END = 1500
_CODE = re.compile(r"\[([A-Z_]+)\] ")


def failed_to_predict(data: object, message: str) -> str:
    """What MLflow's server says where the model, or the enforcement before it, refuses data."""
    return f"Failed to predict data '{data}'. \nError: {message}"


def shorten(message: str) -> str:
    """A message of bearable length: the data may be long, and what is wrong stands at its end."""
    if len(message) <= MAX_MESSAGE_LENGTH:
        return message
    start = MAX_MESSAGE_LENGTH - _KEPT_END - 5
    return f"{message[:start]} ... {message[-_KEPT_END:]}"


def split_code(message: str) -> tuple[str, str]:
    """The code that the shim put before its message, "" without one, and the message."""
    found = _CODE.match(message)
    return (found[1], message[found.end() :]) if found else ("", message)
