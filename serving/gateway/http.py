"""The HTTP side of the gateway: head in, body in, and whether the caller is still there."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import itertools
import os
import time
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from serving.errors import InvalidInput
from serving.gateway.asgi import Receive

CLIENT_GONE = 499
"""Counted as the status where no answer was sent; nginx's word for it."""

_FIRST_LOOK_S = 0.25
_DRAINED_BODIES = 4

_prefix = os.urandom(10).hex()
_numbers = itertools.count(1)


Header = tuple[bytes, bytes]

DATA_HEADERS: tuple[Header, ...] = (
    # Neither predictions nor files are ever documents: no browser runs or frames what they hold.
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"private, no-store"),
)


class Head(NamedTuple):
    """What the gateway needs of a request's head."""

    token_sha256: str | None
    request_id: str
    content_length: int
    content_type: str | None


def read_head(headers: Iterable[Header]) -> Head:
    """Read the headers: the token (as its hash), the caller's request id, the body's length."""
    token: str | None = None
    content_type: str | None = None
    request_id = ""
    content_length = 0
    for name, value in headers:
        if name == b"authorization":
            token = _token_hash(value)
        elif name == b"x-request-id":
            request_id = value[:64].decode("ascii", "replace")
        elif name == b"content-length" and value.isdigit():
            content_length = int(value)
        elif name == b"content-type":
            content_type = value[:200].decode("latin-1")
    if not request_id.isprintable() or not request_id.isascii() or not request_id:
        request_id = f"{_prefix}{next(_numbers):012x}"
    return Head(token, request_id, content_length, content_type)


def _token_hash(value: bytes) -> str | None:
    """SHA-256 of `Bearer TOKEN` or of the password in `Basic token:TOKEN`."""
    scheme, _, rest = value.partition(b" ")
    secret = rest.strip()
    if scheme.lower() == b"basic":
        try:
            user, _, secret = base64.b64decode(secret, validate=True).partition(b":")
        except binascii.Error:
            return None
        if user != b"token":
            return None
    elif scheme.lower() != b"bearer":
        return None
    return hashlib.sha256(secret).hexdigest() if secret else None


async def read_body(receive: Receive, content_length: int, limit: int) -> bytes:
    """The whole body.

    Raises:
        InvalidInput: It is larger than `limit` bytes. A little beyond is read and thrown away, so
            that the caller, who is still sending, gets to see the answer.
        ClientGone: The caller hung up.
    """
    if content_length > limit * _DRAINED_BODIES:
        raise InvalidInput(too_large(limit))
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        if not message.get("more_body", False) or size > limit * _DRAINED_BODIES:
            break
    if size > limit:
        raise InvalidInput(too_large(limit))
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def too_large(limit: int) -> str:
    """What the caller of a body beyond the limit is told."""
    return (
        f"The request body is larger than {limit // 2**20} MB. Send fewer rows in each request."
        if limit >= 2**20
        else f"The request body is larger than {limit} bytes. Send fewer rows in each request."
    )


class ClientGone(Exception):
    """The caller hung up; there is nobody to answer."""


class Cut(StrEnum):
    """Why a request was cut off."""

    SLOW_BODY = "slow body"
    LATE = "late"
    CLIENT_GONE = "client gone"


class Watch:
    """Cancels a request's task when its body stalls, its time is over or its caller is gone.

    One timer a request; what costs more than that starts only for requests that take long.
    """

    __slots__ = (
        "_begun_at",
        "_deadline",
        "_handle",
        "_loop",
        "_receive",
        "_started",
        "_task",
        "_timeout_s",
        "_watcher",
        "cut",
    )

    def __init__(self, receive: Receive, body_timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._started = False
        self._timeout_s = body_timeout_s
        self._begun_at = time.perf_counter()  # the loop's clock counts milliseconds
        self._deadline = self._loop.time() + body_timeout_s
        self.cut: Cut | None = None
        self._handle = self._loop.call_later(min(_FIRST_LOOK_S, body_timeout_s), self._look)

    @property
    def elapsed_s(self) -> float:
        """Since the request's head was here."""
        return time.perf_counter() - self._begun_at

    def begin_answer(self, timeout_s: float) -> None:
        """The body is there; the answer has to be there in `timeout_s`."""
        self._started = True
        self._timeout_s = timeout_s
        self._deadline = self._loop.time() + timeout_s
        if timeout_s < _FIRST_LOOK_S:
            self._handle.cancel()
            self._handle = self._loop.call_later(timeout_s, self._look)

    def go_on(self) -> None:
        """A piece of the answer is there; the next one has as long as the first."""
        self._deadline = self._loop.time() + self._timeout_s

    def stop(self) -> None:
        """The request is over."""
        self._handle.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._deadline:
            self._cancel(Cut.LATE if self._started else Cut.SLOW_BODY)
            return
        if self._started and self._watcher is None:
            self._watcher = self._loop.create_task(self._wait_for_disconnect())
        pause = self._deadline - now
        self._handle = self._loop.call_later(
            pause if self._started else min(pause, _FIRST_LOOK_S), self._look
        )

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel(Cut.CLIENT_GONE)

    def _cancel(self, cut: Cut) -> None:
        if self.cut is None and self._task is not None:
            self.cut = cut
            self._task.cancel()
