"""One request on its way through the gateway, and when it may be tried again.

A connection that is refused, a Triton that restarts, a replica that is being replaced: these cost
the caller time, not an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from serving.errors import Overloaded, ReplicaUnavailable
from serving.gateway.errors import ReplicaBroke
from serving.gateway.http import Header
from serving.gateway.replies import ReplicaFault, ReplicaFull, SharedMemoryFull
from serving.protocol.answers import Answer
from serving.protocol.codec import Decoded, EntityCodec
from serving.spec import RouteEntity

MAX_BREAKS = 3
"""After so many replicas ended on a request it is taken to be the cause."""

FULL_PATIENCE_S = 2.0
TOO_MANY = (
    "Too many concurrent requests. Consider increasing the provisioned concurrency of the "
    "served entity."
)


class Moved(Exception):
    """The entity is gone or reads its input in another way: begin anew with the newest route."""


class Form(Protocol):
    """How a request is read and its answer written, where that is not MLflow's scoring protocol.

    Attributes:
        headers: Of the answer that was written last: its content type, and what goes with that.
    """

    headers: Sequence[Header]

    def decode_quickly(self, codec: EntityCodec, entity: RouteEntity) -> Decoded | None:
        """As `decode`, where that costs little; None where it does not."""
        ...

    async def decode(self, codec: EntityCodec, entity: RouteEntity) -> Decoded:
        """The request as it goes to Triton."""
        ...

    def encode(self, codec: EntityCodec, answers: Sequence[Answer], entity: RouteEntity) -> bytes:
        """The answer's body, from those to each part."""
        ...

    async def invocation(self, entity: RouteEntity) -> bytes:
        """The request as scoring JSON, for the standard backend."""
        ...

    def encode_predictions(self, body: bytes, entity: RouteEntity) -> bytes:
        """The answer's body, from what the standard backend answered."""
        ...


@dataclass(slots=True)
class Call:
    """One request on its way.

    Attributes:
        raw: The body as it came.
        content_type: What the caller says the body is.
        form: How to read it, where it does not.
        served: The entity that has it now; empty before one was chosen.
        headers: The caller's, for a model that brings its own server.
        status: What such a server answered; others' answers are good ones, or errors.
        decoded: What it became for `codec`.
        breaks: How many replicas ended while they had it.
        retries: How often it, or a part of it, was tried again.
        failing_since: Of the first failure, on the loop's clock; None without one.
        exchange_s: From the moment at which it was ready for a replica until the answer.
        compute_s: Of these, in the model; None where the replica does not tell.
    """

    endpoint_name: str
    entity_name: str | None
    raw: bytes
    content_type: str | None = None
    form: Form | None = None
    served: str = ""
    headers: Iterable[tuple[bytes, bytes]] = ()
    status: int = 200
    codec: EntityCodec | None = None
    decoded: Decoded | None = None
    invocation: list[bytes] | None = None
    breaks: int = 0
    retries: int = 0
    failing_since: float | None = None
    exchange_s: float = 0.0
    compute_s: float | None = None

    def encode(self, codec: EntityCodec, answers: Sequence[Answer], entity: RouteEntity) -> bytes:
        """The answer's body, from those to each part."""
        if self.form is None:
            return codec.encode(answers)
        return self.form.encode(codec, answers, entity)

    def note_times(self, exchange_s: float, compute_s: float | None) -> None:
        """A part of the request was answered; of parts that run side by side the longest counts."""
        if exchange_s >= self.exchange_s:
            self.exchange_s, self.compute_s = exchange_s, compute_s


def check_retry(call: Call, exc: BaseException, *, recovery_s: float, is_gone: bool) -> None:
    """Return where the call may be tried again; raise what its caller is told otherwise.

    Args:
        call: Its counts of failures and retries go on.
        exc: Why this try failed.
        recovery_s: How long failures may go on before the caller is told.
        is_gone: Whether the entity is no longer served.

    Raises:
        ServingError: The failure is the caller's to know.
        Moved: The entity is gone.
    """
    if isinstance(exc, ValueError):
        raise ReplicaFault("Sorry, the replica's answer could not be read.") from exc
    if not isinstance(exc, ReplicaUnavailable) or isinstance(exc, SharedMemoryFull):
        raise exc
    now = asyncio.get_running_loop().time()
    if call.failing_since is None:
        call.failing_since = now
    if isinstance(exc, ReplicaFull) and now - call.failing_since > FULL_PATIENCE_S:
        raise Overloaded(TOO_MANY) from exc
    if isinstance(exc, ReplicaBroke):
        call.breaks += 1
    if call.breaks >= MAX_BREAKS:
        raise ReplicaUnavailable(
            f"The replica ended {call.breaks} times while it worked on this request. Look at "
            "the service log before sending it again."
        ) from exc
    if now - call.failing_since > recovery_s:
        raise exc
    call.retries += 1
    if is_gone:
        raise Moved from exc
