"""Sends one request to a replica, and again where a failure was not the request's own.

A connection that is refused, a Triton that restarts, a replica that is being replaced: these cost
the caller time, not an error. Each try looks at the newest route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from serving.errors import Overloaded, ReplicaUnavailable, ServingError
from serving.gateway.errors import EndpointDoesNotExist, EndpointStopped, ReplicaBroke
from serving.gateway.replies import (
    ReplicaFault,
    ReplicaFull,
    SharedMemoryFull,
    output_of,
    predictions_of,
)
from serving.gateway.routing import TOO_MANY, LiveEntity, LiveReplica, LiveRoute
from serving.gateway.state import GatewayState
from serving.gateway.transport import Reply
from serving.protocol import body as bodies
from serving.protocol.codec import EMPTY_PREDICTIONS, Decoded, EntityCodec
from serving.protocol.wire import Part, write_invocation
from serving.spec import RouteEntity

MAX_BREAKS = 3
"""After so many replicas ended on a request it is taken to be the cause."""

PARTS_AT_ONCE = 4
FULL_PAUSE_S = 0.02
FULL_PATIENCE_S = 2.0
DEFAULT_MESSAGE = "The endpoint is not ready yet. Try again in a moment."


class Outcome(NamedTuple):
    """An answer and the name of the entity that gave it."""

    body: bytes
    entity_name: str


class Form(Protocol):
    """How a request is read and its answer written, where that is not MLflow's scoring JSON."""

    async def decode(self, codec: EntityCodec, entity: RouteEntity) -> Decoded:
        """The request as it goes to Triton."""
        ...

    def encode(self, codec: EntityCodec, outputs: Sequence[bytes], entity: RouteEntity) -> bytes:
        """The answer's body, from the output of each part."""
        ...

    async def invocation(self, entity: RouteEntity) -> bytes:
        """The request as scoring JSON, for the standard backend."""
        ...

    def encode_predictions(self, body: bytes, entity: RouteEntity) -> bytes:
        """The answer's body, from what the standard backend answered."""
        ...


class _Moved(Exception):
    """The entity is gone or reads its input in another way: begin anew with the newest route."""


@dataclass(slots=True)
class Call:
    """One request on its way.

    Attributes:
        raw: The body as it came.
        form: How to read it, where it is not MLflow's scoring JSON.
        decoded: What it became for `codec`.
        breaks: How many replicas ended while they had it.
        failing_since: Of the first failure, on the loop's clock; None without one.
    """

    endpoint_name: str
    entity_name: str | None
    raw: bytes
    form: Form | None = None
    codec: EntityCodec | None = None
    decoded: Decoded | None = None
    invocation: list[bytes] | None = None
    breaks: int = 0
    failing_since: float | None = None


class Dispatcher:
    """Finds a replica for a call, and another one where that fails."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state

    async def answer(self, call: Call) -> Outcome:
        """The answer to a call.

        Raises:
            ServingError: In one of its kinds; see `serving.errors` and `serving.gateway.errors`.
        """
        while True:
            route = self._state.routes.get(call.endpoint_name)
            if route is None:
                raise EndpointDoesNotExist(f"Endpoint '{call.endpoint_name}' does not exist.")
            entity = self._choose(route, call)
            try:
                if entity.codec is None:
                    return Outcome(await self._invoke(route, entity, call), entity.spec.name)
                return Outcome(await self._infer(route, entity, call), entity.spec.name)
            except _Moved:
                continue

    def _choose(self, route: LiveRoute, call: Call) -> LiveEntity:
        if route.spec.is_stopped:
            raise EndpointStopped(
                route.spec.message or f"Endpoint '{call.endpoint_name}' is stopped. Start it first."
            )
        entity = route.choose(call.entity_name)
        if entity is None:
            raise ReplicaUnavailable(route.spec.message or DEFAULT_MESSAGE)
        return entity

    # ---------------------------------------------------------------- Triton

    async def _infer(self, route: LiveRoute, entity: LiveEntity, call: Call) -> bytes:
        codec = entity.codec
        if codec is None:
            raise _Moved
        if call.codec is not codec or call.decoded is None:
            form = call.form
            decoded = codec.decode_quickly(call.raw) if form is None else None
            if form is not None:
                decoded = await form.decode(codec, entity.spec)
            elif decoded is None:
                decoded = await asyncio.to_thread(codec.decode, call.raw)
            call.codec, call.decoded = codec, decoded
        parts, params = call.decoded.parts, call.decoded.params
        if not parts:
            return EMPTY_PREDICTIONS
        if len(parts) == 1:
            outputs = [await self._infer_part(route, entity, call, parts[0], params)]
        else:
            outputs = await self._infer_parts(route, entity, call, call.decoded)
        if call.form is not None:
            return call.form.encode(codec, outputs, entity.spec)
        return codec.encode(outputs)

    async def _infer_parts(
        self, route: LiveRoute, entity: LiveEntity, call: Call, decoded: Decoded
    ) -> list[bytes]:
        """A few parts at a time, so that one large request leaves room for others."""
        room = asyncio.Semaphore(PARTS_AT_ONCE)

        async def run(part: Part) -> bytes:
            async with room:
                return await self._infer_part(route, entity, call, part, decoded.params)

        tasks = [asyncio.create_task(run(part)) for part in decoded.parts]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _infer_part(
        self, route: LiveRoute, entity: LiveEntity, call: Call, part: Part, params: str
    ) -> bytes:
        codec = entity.codec
        if codec is None:
            raise _Moved
        pieces = codec.write(part, params)
        return await self._exchange(route, entity, call, pieces, output_of)

    # ---------------------------------------------------------------- the standard backend

    async def _invoke(self, route: LiveRoute, entity: LiveEntity, call: Call) -> bytes:
        if call.form is not None:
            # Not kept: another entity may have another signature.
            pieces = write_invocation(await call.form.invocation(entity.spec))
            answer = await self._exchange(route, entity, call, pieces, predictions_of)
            return call.form.encode_predictions(answer, entity.spec)
        if call.invocation is None:
            body = bodies.read_body(call.raw)
            raw = call.raw
            if not body.is_plain:
                fields = bodies.parse_object(raw)
                raw = bodies.dump({k: v for k, v in fields.items() if k in bodies.FORWARDED_FIELDS})
            call.invocation = write_invocation(raw)
        return await self._exchange(route, entity, call, call.invocation, predictions_of)

    # ---------------------------------------------------------------- tries

    async def _exchange(
        self,
        route: LiveRoute,
        entity: LiveEntity,
        call: Call,
        pieces: list[bytes],
        read: Callable[[Reply], bytes],
    ) -> bytes:
        """Send to a replica and read its answer, again and again while that makes sense."""
        codec = entity.codec
        while True:
            replica = await entity.acquire(
                route.spec.message or DEFAULT_MESSAGE, is_retry=call.failing_since is not None
            )
            if replica is None:
                raise _Moved
            if entity.codec is not codec:
                entity.release(replica, has_answered=False)
                raise _Moved
            try:
                output = read(await replica.pool.request(pieces))
            except BaseException as exc:  # noqa: BLE001 - also when cancelled
                self._give_back(entity, replica, exc)
                self._check_retry(entity, call, exc)
                if isinstance(exc, ReplicaFull):
                    await asyncio.sleep(FULL_PAUSE_S)
            else:
                entity.release(replica)
                return output

    def _give_back(self, entity: LiveEntity, replica: LiveReplica, exc: BaseException) -> None:
        is_away = isinstance(exc, ReplicaUnavailable) and not isinstance(exc, ReplicaFull)
        if is_away and not isinstance(exc, SharedMemoryFull):
            entity.fail(replica)
            self._state.reload_soon()
        else:
            has_answered = isinstance(exc, ServingError)
            entity.release(replica, has_answered=has_answered)

    def _check_retry(self, entity: LiveEntity, call: Call, exc: BaseException) -> None:
        """Return where the call may be tried again; raise otherwise."""
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
        if now - call.failing_since > entity.limits.recovery_s:
            raise exc
        if entity.is_gone:
            raise _Moved from exc
