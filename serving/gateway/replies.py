"""What a replica's answer means: an output, or which error for the caller.

By the contract a model that raises on its input is the caller's 400; 500 is kept for real faults.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from serving.errors import (
    DeadlineExceeded,
    ModelRaised,
    ModelRefused,
    NotBatchable,
    ReplicaUnavailable,
    ServingError,
)
from serving.gateway.errors import ReplicaBroke
from serving.gateway.transport import Reply
from serving.protocol import wire
from serving.protocol.words import SCHEMA_CODE, UNEXPECTED, shorten, split_code

log = logging.getLogger(__name__)

TIMED_OUT = (
    "Timed out while evaluating the model. Verify that the model evaluates within the timeout."
)
_NOT_LOADED = ("unknown model", "no available versions", "is not ready", "not found")


class ReplicaFault(ServingError):
    """The replica answered with an error of its own; asking again would give the same."""


class ReplicaFull(ReplicaUnavailable):
    """Triton's own queue is full; the replica is well."""


class SharedMemoryFull(ReplicaUnavailable):
    """The machine's shared memory does not hold the batch."""


def output_of(reply: Reply) -> bytes:
    """The packed output in Triton's answer.

    Raises:
        ModelRaised: The model refused the input or failed on it.
        NotBatchable: The model returned another number of rows.
        ReplicaUnavailable: Triton is not ready; another try may succeed.
        ReplicaFull: Its queue is full.
        ReplicaBroke: The model's process is dead.
        DeadlineExceeded: The request was in Triton's queue for too long.
        ReplicaFault: Triton cannot serve this request.
    """
    if reply.status == 200:
        return wire.output_of(reply.head, reply.body)
    code, message = split_code(wire.error_of(reply.body))
    if code:  # the shim's own words, whatever the model said in them
        raise _model_error(code, message)
    message = shorten(message)
    if reply.status == 501:
        raise NotBatchable(message)
    if reply.status in {400, 404} and not any(words in message for words in _NOT_LOADED):
        raise ModelRaised(message)
    if reply.status == 503 and "timeout expired" in message:
        raise DeadlineExceeded(TIMED_OUT)
    if reply.status == 503 and "maximum queue size" in message:
        raise ReplicaFull("The replica's queue is full.")
    if "is not healthy" in message:
        raise ReplicaBroke("The model's process ended while it had the request.")
    if "Failed to increase the shared memory pool size" in message:
        raise SharedMemoryFull(
            "The shared memory of the replica's machine is too small for this batch. Send fewer "
            "rows in each request, or ask an admin to enlarge /dev/shm."
        )
    if reply.status in {400, 404, 503}:
        raise ReplicaUnavailable("The replica is not ready. Try again.")
    log.error("a replica answered %d: %s", reply.status, message)
    raise ReplicaFault("Sorry, the replica could not process this request; its log has the reason.")


def predictions_of(reply: Reply) -> bytes:
    """The body that MLflow's scoring server answered.

    Raises:
        ModelRaised: The model refused the input or failed on it.
        DeadlineExceeded: The server gave the request up.
        ReplicaUnavailable: The server is not ready.
    """
    if reply.status == 200:
        return reply.body
    fields = _mlflow_error(reply.body)
    if fields is None and reply.status == 504:
        raise DeadlineExceeded(TIMED_OUT)
    if fields is None and reply.status in {502, 503}:
        raise ReplicaUnavailable("The replica is not ready. Try again.")
    raise _model_error(*(fields or ("", UNEXPECTED)))


def _model_error(code: str, message: str) -> ModelRaised:
    """Where MLflow's server answers 500 it is a 400 here: the model raised on this input."""
    return (ModelRefused if code == SCHEMA_CODE else ModelRaised)(shorten(message))


def _mlflow_error(body: bytes) -> tuple[str, str] | None:
    """MLflow's code and message; of a model's own failure also the last line of the traceback."""
    try:
        fields: dict[str, Any] = json.loads(body)
        code, message = str(fields["error_code"]), str(fields["message"])
    except (ValueError, KeyError, TypeError):
        return None
    trace = str(fields.get("stack_trace") or "").strip()
    if trace and "unexpected error while evaluating" in message:
        message = f"{message} {trace.splitlines()[-1].strip()}"
    return code, message
