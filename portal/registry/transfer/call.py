"""One HTTP call over ASGI: its headers, its body in blocks, its answer."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from urllib.parse import parse_qsl

from portal.rest import ApiError, InvalidParameterValue
from portal.workspace import ORG_ID_HEADER, workspace_id
from serving.gateway.asgi import Receive, Scope, Send

BLOCK = 2**20
IDLE_LIMIT_S = 120
DRAIN_LIMIT_BYTES = 64 * 2**30


class Disconnected(Exception):
    """The client went away, or sent nothing for too long."""


class Call:
    """What an ASGI application is given for one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive, self.send = scope, receive, send
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        self.request_id = self.headers.get("x-request-id", "")[:64] or uuid.uuid4().hex
        self.is_started = False
        self.is_read = False

    @property
    def address(self) -> str:
        """The caller's."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    @property
    def query(self) -> dict[str, str]:
        """The query parameters; the last of two with one name counts."""
        text = self.scope["query_string"].decode("latin-1")
        return dict(parse_qsl(text, keep_blank_values=True))

    @property
    def content_length(self) -> int | None:
        """The body's announced length; None for a chunked body.

        Raises:
            InvalidParameterValue: It is not a number.
        """
        text = self.headers.get("content-length")
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
            raise InvalidParameterValue("Content-Length is not a number.")
        return int(text)

    async def blocks(self) -> AsyncIterator[bytearray]:
        """The body in blocks of about a mebibyte.

        Raises:
            Disconnected: The client went away before its end.
        """
        buffer = bytearray()
        while not self.is_read:
            buffer += await self._next_piece()
            if len(buffer) >= BLOCK:
                yield buffer
                buffer = bytearray()
        if buffer:
            yield buffer

    async def _next_piece(self) -> bytes:
        try:
            async with asyncio.timeout(IDLE_LIMIT_S):
                message = await self.receive()
        except TimeoutError:
            raise Disconnected from None
        if message["type"] == "http.disconnect":
            raise Disconnected
        self.is_read = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece

    async def drain(self, limit_bytes: int = DRAIN_LIMIT_BYTES) -> None:
        """Take the rest of the body and forget it.

        A client that still sends sees a broken connection, not the answer, and sends it all again.
        """
        taken = 0
        while not self.is_read and taken <= limit_bytes:
            taken += len(await self._next_piece())

    async def answer(
        self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send a whole answer."""
        headers = dict(headers or {})
        if status != 204:
            headers.setdefault("content-length", str(len(body)))
        await self.start(status, headers)
        await self.send(
            {"type": "http.response.body", "body": b"" if self.method == "HEAD" else body}
        )

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers; the body follows."""
        self.is_started = True
        every = {ORG_ID_HEADER: workspace_id(), "x-content-type-options": "nosniff"} | dict(headers)
        await self.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in every.items()],
            }
        )

    async def fail(self, error: ApiError) -> None:
        """Send an error in the API's one shape."""
        content = {
            "error_code": error.code,
            "message": error.message,
            "details": error.details,
            "request_id": self.request_id,
        }
        headers = {"content-type": "application/json"}
        if error.status in {429, 503}:
            headers["retry-after"] = "1"
        await self.answer(error.status, headers, json.dumps(content).encode())

    async def deny_link(self, message: str) -> None:
        """Refuse a signed link as object stores do; at "expired", clients ask for a new one."""
        text = (
            '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code>'
            f"<Message>{message}</Message></Error>"
        )
        await self.answer(403, {"content-type": "application/xml"}, text.encode())
