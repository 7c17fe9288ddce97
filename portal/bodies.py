"""Bound what Django is given to read: it would take a body of any size to the disk before a view.

A body that is too large is not read on; Django then gets its beginning and is told so through the
ASGI scope, and `portal.ui.guard` answers in the shape of the path.
"""

from __future__ import annotations

from collections.abc import Callable

from serving.gateway.asgi import ASGIApp, Message, Receive, Scope, Send

TOO_LARGE = "shoal.body_too_large"
"""Scope key: how many bytes are allowed, where the body has more."""


class BoundedBodies:
    """An application in front of another; WebSockets are refused.

    Args:
        application: The one that gets the bounded bodies.
        limit_of: How many bytes a body may have, by the request's path.
    """

    def __init__(self, application: ASGIApp, limit_of: Callable[[str], int]) -> None:
        self._application = application
        self._limit_of = limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body bounded."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        body = _Body(scope, receive, self._limit_of(scope["path"]))
        await self._application(scope, body.receive, send)


class _Body:
    """Counts what comes; ends the body early where that is too much."""

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        self._scope, self._receive, self._limit = scope, receive, limit
        self._is_cut = False
        self._size = 0
        announced = next((v for k, v in scope["headers"] if k == b"content-length"), b"")
        if announced.isdigit():
            self._check(int(announced[:18]))

    async def receive(self) -> Message:
        if TOO_LARGE in self._scope and not self._is_cut:
            self._is_cut = True
            return {"type": "http.request", "body": b"", "more_body": False}
        message = await self._receive()
        if self._is_cut:  # Django now listens for the caller to hang up
            while message["type"] == "http.request":
                message = await self._receive()
            return message
        self._size += len(message.get("body", b""))
        self._check(self._size)
        return message

    def _check(self, size: int) -> None:
        if size > self._limit:
            self._scope[TOO_LARGE] = self._limit
