"""Sends one request to a replica, and again where a failure was not the request's own.

Each try looks at the newest route. Behind Triton the served entity's `Joiner` does the sending.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from serving.errors import InvalidInput, ReplicaUnavailable, ServingError
from serving.gateway.calls import Call, Moved, check_retry
from serving.gateway.entrypoint import PassedAnswer, pass_on
from serving.gateway.errors import EndpointDoesNotExist, EndpointStopped
from serving.gateway.joining import Joiner
from serving.gateway.replies import ReplicaFull, SharedMemoryFull, predictions_of
from serving.gateway.routing import LiveEntity, LiveReplica, LiveRoute
from serving.gateway.state import GatewayState
from serving.protocol import body as bodies
from serving.protocol.answers import Answer
from serving.protocol.body import Format
from serving.protocol.codec import Decoded, EntityCodec
from serving.protocol.wire import Part, write_invocation
from serving.spec import Backend

PARTS_AT_ONCE = 4
FULL_PAUSE_S = 0.02
DEFAULT_MESSAGE = "The endpoint is not ready yet. Try again in a moment."


class Outcome(NamedTuple):
    """An answer, the name of the entity that gave it, and where the time went.

    Attributes:
        replica_s: From the moment at which the request was ready for a replica until its answer.
        compute_s: Of these, in the model; None where the replica does not tell.
        passed: Of a model that brings its own server: the answer in place of `body`.
    """

    body: bytes
    entity_name: str
    replica_s: float
    compute_s: float | None
    passed: PassedAnswer | None = None

    def server_timing(self, total_s: float) -> bytes:
        """The value of the header `Server-Timing`, in milliseconds.

        `gateway` is the gateway's own work; `queue` the wait for the model, the ways there and
        back included; `compute` the model's call, shared with the requests that it was joined with.
        """
        gateway_ms = max(0.0, total_s - self.replica_s) * 1e3
        if self.compute_s is None:
            return b"gateway;dur=%.2f, replica;dur=%.2f" % (gateway_ms, self.replica_s * 1e3)
        queue_ms = max(0.0, self.replica_s - self.compute_s) * 1e3
        return b"gateway;dur=%.2f, queue;dur=%.2f, compute;dur=%.2f" % (
            gateway_ms,
            queue_ms,
            self.compute_s * 1e3,
        )


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
            call.served = entity.spec.name
            try:
                if entity.spec.backend is Backend.ENTRYPOINT:
                    passed = await self._pass_on(route, entity, call)
                    return Outcome(b"", entity.spec.name, call.exchange_s, None, passed)
                if entity.joiner is None:
                    body = await self._invoke(route, entity, call)
                else:
                    body = await self._infer(route, entity, entity.joiner, call)
                return Outcome(body, entity.spec.name, call.exchange_s, call.compute_s)
            except Moved:
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

    async def _infer(
        self, route: LiveRoute, entity: LiveEntity, joiner: Joiner, call: Call
    ) -> bytes:
        codec = joiner.codec
        if call.codec is not codec or call.decoded is None:
            call.codec, call.decoded = codec, await self._decode(codec, entity, call)
        parts, params = call.decoded.parts, call.decoded.params
        message = route.spec.message or DEFAULT_MESSAGE
        if len(parts) == 1:
            answers = [await joiner.infer(parts[0], params, call, message)]
        else:
            answers = await self._infer_parts(joiner, call, call.decoded, message)
        return call.encode(codec, answers, entity.spec)

    async def _decode(self, codec: EntityCodec, entity: LiveEntity, call: Call) -> Decoded:
        if call.form is not None:
            return await call.form.decode(codec, entity.spec)
        body_format = bodies.format_of(call.content_type)
        decoded = codec.decode_quickly(call.raw, body_format)
        if decoded is None:
            return await asyncio.to_thread(codec.decode, call.raw, body_format)
        return decoded

    async def _infer_parts(
        self, joiner: Joiner, call: Call, decoded: Decoded, message: str
    ) -> list[Answer]:
        """A few parts at a time, so that one large request leaves room for others."""
        room = asyncio.Semaphore(PARTS_AT_ONCE)

        async def run(part: Part) -> Answer:
            async with room:
                return await joiner.infer(part, decoded.params, call, message)

        tasks = [asyncio.create_task(run(part)) for part in decoded.parts]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ---------------------------------------------------------------- the standard backend

    async def _invoke(self, route: LiveRoute, entity: LiveEntity, call: Call) -> bytes:
        form = call.form
        if form is not None:
            # Not kept: another entity may have another signature.
            pieces = write_invocation(await form.invocation(entity.spec))
            answer = await self._exchange(route, entity, call, pieces)
            return form.encode_predictions(answer, entity.spec)
        if call.invocation is None:
            raw, body_format = call.raw, bodies.format_of(call.content_type)
            if body_format is Format.JSON and not bodies.read_body(raw).is_plain:
                raw = bodies.keep_forwarded(raw)
            call.invocation = write_invocation(raw, body_format)
        return await self._exchange(route, entity, call, call.invocation)

    # ---------------------------------------------------------------- a server of the model's own

    async def _pass_on(self, route: LiveRoute, entity: LiveEntity, call: Call) -> PassedAnswer:
        """Send the request as it came; until its answer begins it is tried again, as elsewhere."""
        if call.form is not None:
            raise InvalidInput(
                f"Served entity '{entity.spec.name}' brings its own server, which is asked at "
                "/invocations in its own words. The Open Inference Protocol is not offered for it."
            )
        since = time.perf_counter()
        while True:
            replica = await self._acquire(route, entity, call, Backend.ENTRYPOINT)

            def closed(has_answered: bool, replica: LiveReplica = replica) -> None:  # noqa: FBT001 - a callback's only word
                entity.release(replica, has_answered=has_answered)

            try:
                answer = await pass_on(replica.spec.address, call.raw, call.headers, closed)
                if not answer.head.is_stream:
                    await answer.read_whole()
            except BaseException as exc:  # noqa: BLE001 - also when cancelled
                self._give_back(entity, replica, exc)
                check_retry(call, exc, recovery_s=entity.limits.recovery_s, is_gone=entity.is_gone)
            else:
                call.note_times(time.perf_counter() - since, None)
                call.status = answer.head.status
                return answer

    async def _exchange(
        self, route: LiveRoute, entity: LiveEntity, call: Call, pieces: list[bytes]
    ) -> bytes:
        """Send to a replica and read its answer, again and again while that makes sense."""
        since = time.perf_counter()
        while True:
            replica = await self._acquire(route, entity, call, Backend.STANDARD)
            try:
                output = predictions_of(await replica.pool.request(pieces))
            except BaseException as exc:  # noqa: BLE001 - also when cancelled
                self._give_back(entity, replica, exc)
                check_retry(call, exc, recovery_s=entity.limits.recovery_s, is_gone=entity.is_gone)
                if isinstance(exc, ReplicaFull):
                    await asyncio.sleep(FULL_PAUSE_S)
            else:
                entity.release(replica)
                call.note_times(time.perf_counter() - since, None)
                return output

    async def _acquire(
        self, route: LiveRoute, entity: LiveEntity, call: Call, backend: Backend
    ) -> LiveReplica:
        """A replica with room, for as long as the entity stays on this backend."""
        replica = await entity.acquire(
            route.spec.message or DEFAULT_MESSAGE, is_retry=call.failing_since is not None
        )
        if replica is not None and entity.spec.backend is backend:
            return replica
        if replica is not None:
            entity.release(replica, has_answered=False)
        raise Moved

    def _give_back(self, entity: LiveEntity, replica: LiveReplica, exc: BaseException) -> None:
        is_away = isinstance(exc, ReplicaUnavailable) and not isinstance(exc, ReplicaFull)
        if is_away and not isinstance(exc, SharedMemoryFull):
            entity.fail(replica)
            self._state.reload_soon()
        else:
            has_answered = isinstance(exc, ServingError)
            entity.release(replica, has_answered=has_answered)
