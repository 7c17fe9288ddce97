"""The short way for the usual request, without the server's ASGI cycle and a task of its own.

Most requests to an endpoint behind Triton are small, arrive at once, and want what every other one
wants, in MLflow's words or as the Open Inference Protocol's tensors. For them, building the ASGI
cycle around the gateway costs more than the gateway's own work (measured: more than half of the
time at one caller). `serving.gateway.server` holds such a request back until it is whole and offers
it to the `Lane`, which answers it, or says no; then it goes the usual way, as everything else does,
and what is wrong with it is said there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from serving.errors import DeadlineExceeded, ReplicaUnavailable, ServingError
from serving.gateway.calls import Call, Moved
from serving.gateway.dispatch import DEFAULT_MESSAGE, Outcome
from serving.gateway.errors import unexpected
from serving.gateway.http import CLIENT_GONE, DATA_HEADERS, Head, Header, read_head
from serving.gateway.oip import PREFIX, error_fields, quick_form
from serving.gateway.replies import TIMED_OUT
from serving.permissions import Action
from serving.protocol.body import Format
from serving.spec import RouteEntity

if TYPE_CHECKING:
    from serving.gateway.app import Gateway
    from serving.gateway.joining import Job, Joiner
    from serving.gateway.routing import LiveRoute

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024
"""Larger bodies arrive in many pieces, and their reading costs more than the way."""
TICK_S = 0.05
"""How late a deadline may be noticed."""

Done = Callable[[bytes, bytes], None]
"""Gets an answer's status line with its headers, and its body."""

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_JSON = b"content-type: application/json"
_DATA_HEADERS = b"".join(b"%s: %s\r\n" % pair for pair in DATA_HEADERS)


class Lane:
    """Answers requests that may take the short way.

    Args:
        gateway: Knows callers and endpoints, and counts.

    Attributes:
        entered: Requests that it took since the start.
    """

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.entered = 0
        self._passages: dict[Passage, None] = {}  # the oldest first
        self._tick: asyncio.TimerHandle | None = None

    def enter(
        self, url: bytes, headers: Sequence[Header], body: bytes, done: Done
    ) -> Passage | None:
        """Begin to answer a POST request; None where it has to go the usual way.

        `done` is called once, later, unless the passage is canceled before.
        """
        if len(body) > MAX_BYTES or b"%" in url or b"?" in url:
            return None
        try:
            parts = url.decode("ascii").split("/")
            if len(parts) == 4:  # /serving-endpoints/{name}/invocations
                return self._begin(parts[2], None, headers, body, done)
            if len(parts) == 7 and parts[3:5] == [PREFIX, "models"]:  # .../v2/models/{model}/infer
                return self._begin(parts[2], parts[5], headers, body, done)
        except (ServingError, Moved, UnicodeDecodeError):
            pass
        return None

    def _begin(
        self, name: str, model: str | None, headers: Sequence[Header], body: bytes, done: Done
    ) -> Passage | None:
        since = time.perf_counter()
        gateway, head = self.gateway, read_head(headers)
        if model is None and head.content_type not in (None, Format.JSON):
            return None
        principal = gateway.principal_of(head)
        route = gateway.route_for(name, principal, Action.QUERY)
        # Of several entities one is chosen by share, once: a choice that the lane cannot serve and
        # the usual way makes anew would shift the shares.
        if route.spec.is_stopped or route.spec.rate_limits or len(route.entities) != 1:
            return None
        entity = route.choose(None)
        if entity is None or entity.joiner is None:
            return None
        codec, form = entity.joiner.codec, None
        if model is None:
            decoded = codec.decode_quickly(body)
        else:
            form = quick_form(route, model, headers, body)
            decoded = None if form is None else form.decode_quickly(codec, entity.spec)
        if decoded is None or len(decoded.parts) != 1:
            return None
        call = Call(name, None, body, form=form, codec=codec, decoded=decoded)
        call.served = entity.spec.name
        passage = Passage(self, head, route, entity.spec, call, done, since)
        passage.begin(entity.joiner)
        self.entered += 1
        return passage

    def watch(self, passage: Passage) -> None:
        """Keep an eye on a passage's deadline."""
        self._passages[passage] = None
        if self._tick is None:
            self._tick = passage.loop.call_later(TICK_S, self._look)

    def forget(self, passage: Passage) -> None:
        """It is over."""
        self._passages.pop(passage, None)

    def _look(self) -> None:
        self._tick = None
        late = [p for p in self._passages if p.deadline <= p.loop.time()]
        for passage in late:
            passage.expire()
        if self._passages:
            loop = next(iter(self._passages)).loop
            self._tick = loop.call_later(TICK_S, self._look)


class Passage:
    """One request on the short way."""

    __slots__ = (
        "_call",
        "_done",
        "_entity",
        "_head",
        "_job",
        "_joiner",
        "_lane",
        "_route",
        "_since",
        "_slow",
        "deadline",
        "loop",
    )

    def __init__(
        self,
        lane: Lane,
        head: Head,
        route: LiveRoute,
        entity: RouteEntity,
        call: Call,
        done: Done,
        since: float,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._lane = lane
        self._head = head
        self._route = route
        self._entity = entity
        self._call = call
        self._done = done
        self._since = since
        self._job: Job | None = None
        self._joiner: Joiner | None = None
        self._slow: asyncio.Task[None] | None = None
        self.deadline = self.loop.time() + route.spec.request_timeout_s

    def begin(self, joiner: Joiner) -> None:
        """Queue for a replica.

        Raises:
            ServingError: There is no room, or no replica.
            Moved: The entity has just changed.
        """
        decoded = self._call.decoded
        assert decoded is not None  # noqa: S101 - the lane has decoded it
        message = self._route.spec.message or DEFAULT_MESSAGE
        self._job = joiner.enqueue(decoded.parts[0], decoded.params, self._call, message)
        self._joiner = joiner
        self._job.answer.add_done_callback(self._settle)
        self._lane.watch(self)

    def cancel(self) -> None:
        """The caller hung up."""
        self._give_up()
        self._count(CLIENT_GONE)

    def expire(self) -> None:
        """The time is over."""
        self._give_up()
        self._refuse(DeadlineExceeded(TIMED_OUT))

    def _give_up(self) -> None:
        self._lane.forget(self)
        if self._slow is not None:
            self._slow.cancel()
        if self._job is not None and self._joiner is not None and not self._job.answer.done():
            self._job.answer.cancel()
            self._joiner.leave(self._job)

    def _settle(self, answer: asyncio.Future[Any]) -> None:
        joiner = self._joiner
        if answer.cancelled() or joiner is None:
            return
        joiner.has_left()
        call = self._call
        try:
            body = call.encode(joiner.codec, [answer.result()], self._entity)
            self._answer(Outcome(body, call.served, call.exchange_s, call.compute_s))
        except Moved:
            self._slow = self.loop.create_task(self._answer_slowly())
        except ServingError as exc:
            self._refuse(exc)
        except Exception:  # the outermost: a fault of ours must not leave the caller waiting
            log.exception("request %s failed", self._head.request_id)
            self._refuse(unexpected(self._head.request_id))

    async def _answer_slowly(self) -> None:
        """The endpoint has changed: look at the newest route, as the usual way does."""
        try:
            outcome = await self._lane.gateway.dispatcher.answer(self._call)
        except ServingError as exc:
            self._refuse(exc)
        except Exception:  # as above
            log.exception("request %s failed", self._head.request_id)
            self._refuse(unexpected(self._head.request_id))
        else:
            if outcome.passed is None:
                self._answer(outcome)
            else:  # the model now brings its own server: its answer has no place here
                outcome.passed.close()
                self._refuse(ReplicaUnavailable("The endpoint has just changed. Try again."))

    def _answer(self, outcome: Outcome) -> None:
        form = self._call.form
        headers = b"%s\r\nserved-model-name: %s\r\nserver-timing: %s" % (
            _JSON if form is None else _lines(form.headers),
            outcome.entity_name.encode(),
            outcome.server_timing(time.perf_counter() - self._since),
        )
        self._send(200, headers, outcome.body)

    def _refuse(self, error: ServingError) -> None:
        more = {} if self._call.form is None else error_fields(error)
        headers, body = self._lane.gateway.error_answer(error, self._head.request_id, more)
        self._send(error.status, _lines(headers), body)

    def _send(self, status: int, headers: bytes, body: bytes) -> None:
        self._lane.forget(self)
        self._count(status)
        self._done(
            b"%s%s\r\ncontent-length: %d\r\nx-request-id: %s\r\n%s"
            % (
                _STATUS_LINES[status],
                headers,
                len(body),
                self._head.request_id.encode(),
                _DATA_HEADERS,
            ),
            body,
        )

    def _count(self, status: int) -> None:
        self._lane.gateway.meter.count(
            self._route.spec.endpoint_id, self._call, status, time.perf_counter() - self._since
        )


def _lines(headers: Iterable[Header]) -> bytes:
    return b"\r\n".join(b"%s: %s" % pair for pair in headers)
