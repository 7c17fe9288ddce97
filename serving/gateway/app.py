"""The data plane's ASGI application: `POST /serving-endpoints/{name}/invocations`.

It checks the token and the level, reads the body, and answers `{"predictions": ...}` or an error
in the one JSON shape. It needs neither the database nor Django; routes and principals come through
Redis.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Thread

import orjson

from serving.errors import DeadlineExceeded, InvalidInput, ReplicaUnavailable, ServingError
from serving.gateway.asgi import Receive, Scope, Send
from serving.gateway.calls import Call
from serving.gateway.dispatch import Dispatcher
from serving.gateway.entrypoint import PassedAnswer, pass_back
from serving.gateway.errors import (
    EndpointDoesNotExist,
    NotPermitted,
    RateLimited,
    Unauthenticated,
    UnknownPath,
    unexpected,
)
from serving.gateway.http import (
    DATA_HEADERS,
    ClientGone,
    Cut,
    Head,
    Header,
    Watch,
    read_body,
    read_head,
)
from serving.gateway.lane import Lane
from serving.gateway.limiting import RateLimiter
from serving.gateway.meter import Meter
from serving.gateway.oip import Door, OpenInference, error_fields, is_open_inference
from serving.gateway.replies import TIMED_OUT
from serving.gateway.routing import Limits, LiveRoute
from serving.gateway.state import GatewayState
from serving.permissions import Action, Verdict, judge
from serving.protocol.mlflow_parser import import_mlflow
from serving.spec import Principal

log = logging.getLogger(__name__)

RETRY_AFTER_STATUS = frozenset((429, 503))
_JSON = (b"content-type", b"application/json")

Headers = Iterable[Header]
Answered = tuple[bytes, Headers, PassedAnswer | None]
"""A body and its headers, for status 200; or what a model's own server says in the body's place."""
Answerer = Callable[[Scope, Receive, Head, Watch], Awaitable[Answered]]
ErrorFields = Callable[[ServingError], Mapping[str, str]]
"""What the body of an error holds beside our own fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What the gateway can be told.

    Attributes:
        max_request_bytes: Of a body.
        max_waiting: Requests that may queue at a served entity beyond those in flight.
        body_timeout_s: For a body to arrive.
        recovery_s: How long requests wait for replicas that went away to come back.
        retry_after_s: What 429 and 503 tell the caller, where nothing better is known.
        processes: Gateways that share rate limits while Redis is away.
    """

    redis_url: str
    max_request_bytes: int = 16 * 2**20
    max_waiting: int = 100
    body_timeout_s: float = 30.0
    recovery_s: float = 30.0
    retry_after_s: int = 1
    processes: int = 1


def create_gateway(settings: GatewaySettings) -> Gateway:
    """The gateway as an ASGI application; it follows the published state from its start-up on."""
    return Gateway(settings)


class Gateway:
    """One process's gateway.

    Attributes:
        lane: The short way for the usual request, where the server has `LaneProtocol`.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._limits = Limits(max_waiting=settings.max_waiting, recovery_s=settings.recovery_s)
        self._state = GatewayState(settings.redis_url, self._limits)
        self.dispatcher = Dispatcher(self._state)
        self._limiter = RateLimiter(settings.redis_url, settings.processes)
        self.meter = Meter(settings.redis_url)
        door = Door(self.principal_of, self.route_for, self._admit, self.meter.measure)
        self.lane = Lane(self)
        self._oip = OpenInference(door, self.dispatcher, settings.max_request_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request, or the server's start and stop."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._state.start()
                self.meter.start()
                Thread(target=import_mlflow, name="import-mlflow", daemon=True).start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._state.stop()
                await self.meter.stop()
                await self._limiter.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_open_inference(scope["path"]):
            await self._respond(scope, receive, send, self._oip.answer, error_fields)
        else:
            await self._respond(scope, receive, send, self._answer, _no_fields)

    async def _respond(
        self, scope: Scope, receive: Receive, send: Send, answer: Answerer, more: ErrorFields
    ) -> None:
        head = read_head(scope["headers"])
        watch = Watch(receive, self._settings.body_timeout_s)
        try:
            body, headers, passed = await answer(scope, receive, head, watch)
        except ClientGone:
            return
        except ServingError as exc:
            await self._send_error(send, exc, head.request_id, more)
        except asyncio.CancelledError:
            error = _error_of(watch.cut)
            if watch.cut is None:
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            if error is not None:
                await self._send_error(send, error, head.request_id, more)
        except Exception:  # the outermost: a fault of ours must not end the connection silently
            log.exception("request %s failed", head.request_id)
            await self._send_error(send, unexpected(head.request_id), head.request_id, more)
        else:
            if passed is None:
                await _send(send, 200, body, head.request_id, headers)
            else:
                headers = (*headers, (b"x-request-id", head.request_id.encode()))
                await pass_back(send, passed, headers, watch)
        finally:
            watch.stop()

    async def _answer(self, scope: Scope, receive: Receive, head: Head, watch: Watch) -> Answered:
        endpoint_name, entity_name = _names_in(scope["path"], scope["method"])
        principal = self.principal_of(head)
        route = self.route_for(endpoint_name, principal, Action.QUERY)
        with self.meter.measure(route.spec.endpoint_id, watch) as measured:
            if route.spec.rate_limits:
                await self._admit(route, principal)
            raw = await read_body(receive, head.content_length, self._settings.max_request_bytes)
            watch.begin_answer(route.spec.request_timeout_s)
            call = measured.begin(
                Call(
                    endpoint_name,
                    entity_name,
                    raw,
                    content_type=head.content_type,
                    headers=scope["headers"],
                )
            )
            outcome = await self.dispatcher.answer(call)
        headers = (
            _JSON,
            (b"served-model-name", outcome.entity_name.encode()),
            (b"server-timing", outcome.server_timing(watch.elapsed_s)),
        )
        return outcome.body, headers if outcome.passed is None else headers[1:], outcome.passed

    async def _admit(self, route: LiveRoute, principal: Principal) -> None:
        spec = route.spec
        if spec.rate_limits:
            await self._limiter.admit(
                spec.endpoint_id, spec.endpoint_name, spec.rate_limits, principal
            )

    def principal_of(self, head: Head) -> Principal:
        """The caller.

        Raises:
            Unauthenticated: There is no token, or it is not known.
            ReplicaUnavailable: No token is known yet.
        """
        if not self._state.is_loaded:
            raise ReplicaUnavailable("Shoal is starting. Try again in a moment.")
        if head.token_sha256 is None:
            raise Unauthenticated(
                "There is no token. Send the header Authorization: Bearer <personal access token>."
            )
        principal = self._state.principals.get(head.token_sha256)
        if principal is None or (
            principal.expires_at is not None and principal.expires_at <= time.time()
        ):
            raise Unauthenticated("The token is not valid: unknown, revoked or expired.")
        self._state.note_token_use(head.token_sha256)
        return principal

    def route_for(self, name: str, principal: Principal, action: Action) -> LiveRoute:
        """The endpoint, if the caller may do this to it.

        Raises:
            EndpointDoesNotExist: There is none, or the caller may not see it.
            NotPermitted: The caller may see it, but not do this.
        """
        route = self._state.routes.get(name)
        level = None if route is None else route.level_of(principal)
        verdict = judge(level, action)
        if route is None or verdict is Verdict.HIDDEN:
            raise EndpointDoesNotExist(f"Endpoint '{name}' does not exist.")
        if verdict is Verdict.REFUSED:
            raise NotPermitted(
                f"You may view endpoint '{name}' but not query it. Ask its owner for CAN_QUERY."
            )
        return route

    async def _send_error(
        self, send: Send, error: ServingError, request_id: str, more: ErrorFields
    ) -> None:
        headers, body = self.error_answer(error, request_id, more(error))
        await _send(send, error.status, body, request_id, headers)

    def error_answer(
        self, error: ServingError, request_id: str, more: Mapping[str, str] | None = None
    ) -> tuple[list[Header], bytes]:
        """An error's headers and body, in the one JSON shape with `more` beside it."""
        body = orjson.dumps(
            {
                **(more or {}),
                "error_code": error.code,
                "message": error.message,
                "details": [],
                "request_id": request_id,
            }
        )
        headers = [_JSON]
        if error.status in RETRY_AFTER_STATUS:
            retry_after_s = self._settings.retry_after_s
            if isinstance(error, RateLimited):
                retry_after_s = error.retry_after_s
            headers.append((b"retry-after", str(retry_after_s).encode()))
        return headers, body


def _no_fields(error: ServingError) -> Mapping[str, str]:
    return {}


def _names_in(path: str, method: str) -> tuple[str, str | None]:
    """The endpoint's name and the served entity's, where the path names one."""
    parts = path.split("/")
    if method == "POST":
        if len(parts) == 4 and parts[3] == "invocations" and parts[2]:
            return parts[2], None
        if len(parts) == 6 and parts[3] == "served-models" and parts[5] == "invocations":
            return parts[2], parts[4]
    raise UnknownPath(f"There is no {method} {path[:200]}.")


def _error_of(cut: Cut | None) -> ServingError | None:
    if cut is Cut.LATE:
        return DeadlineExceeded(TIMED_OUT)
    if cut is Cut.SLOW_BODY:
        return InvalidInput("The request body did not arrive in time.")
    return None


async def _send(send: Send, status: int, body: bytes, request_id: str, headers: Headers) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                *headers,
                (b"content-length", str(len(body)).encode()),
                (b"x-request-id", request_id.encode()),
                *DATA_HEADERS,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
