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
    NotBatchable,
    ReplicaUnavailable,
    ServingError,
)
from serving.gateway.errors import ReplicaBroke
from serving.gateway.transport import Reply
from serving.protocol import wire
from serving.protocol.answers import clean_json

log = logging.getLogger(__name__)

UNEXPECTED = (
    "Encountered an unexpected error while evaluating the model. Verify that the input is "
    "compatible with the model for inference."
)
TIMED_OUT = (
    "Timed out while evaluating the model. Verify that the model evaluates within the timeout."
)
MAX_MESSAGE_LENGTH = 4000

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
    message = wire.error_of(reply.body)[:MAX_MESSAGE_LENGTH]
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
    """The body that MLflow's scoring server answered, fit for strict JSON.

    Raises:
        ModelRaised: The model refused the input or failed on it.
        DeadlineExceeded: The server gave the request up.
        ReplicaUnavailable: The server is not ready.
    """
    if reply.status == 200:
        return clean_json(reply.body)
    if reply.status == 504:
        raise DeadlineExceeded(TIMED_OUT)
    if reply.status in {502, 503}:
        raise ReplicaUnavailable("The replica is not ready. Try again.")
    raise ModelRaised(_mlflow_message(reply.body)[:MAX_MESSAGE_LENGTH])


def _mlflow_message(body: bytes) -> str:
    """MLflow's message; of a model's own failure also the last line of the traceback."""
    try:
        fields: dict[str, Any] = json.loads(body)
        message = str(fields["message"])
    except (ValueError, KeyError, TypeError):
        return UNEXPECTED
    trace = str(fields.get("stack_trace") or "").strip()
    if not trace or "unexpected error while evaluating" not in message:
        return message
    return f"{UNEXPECTED} {trace.splitlines()[-1].strip()}"
