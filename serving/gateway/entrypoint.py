"""HTTP to a model that brings its own server: requests go there as they came, and so come answers.

Such a server may be anything, so this reads all of HTTP/1: answers with a length, in chunks, or
until the end of the connection. Each request has a connection of its own; that costs a fraction of
a millisecond and shows the server who still waits. An answer of events (`text/event-stream`), or
one whose length is not known, is passed on as it comes; others are read as a whole first, so that
the request can be sent again when the server dies on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

import httptools

from serving.errors import ReplicaUnavailable
from serving.gateway.asgi import Send
from serving.gateway.errors import ReplicaBroke
from serving.gateway.http import DATA_HEADERS, Watch

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 2.0
READ_BYTES = 64 * 1024
PASSED_REQUEST_HEADERS = (b"content-type", b"content-encoding", b"accept")
PASSED_ANSWER_HEADERS = frozenset({b"content-type", b"content-encoding", b"retry-after"})
EVENTS = b"text/event-stream"


class PassedHead(NamedTuple):
    """An answer's beginning: what of it goes to the caller."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    is_stream: bool


class PassedAnswer:
    """An answer on its way; `close` must be called, and may be called again.

    Args:
        exchange: Where it comes from.
        head: Its beginning.
        closed: Called once when it is over, with whether all of it came.
    """

    def __init__(
        self, exchange: _Exchange, head: PassedHead, closed: Callable[[bool], None]
    ) -> None:
        self._exchange = exchange
        self._closed: Callable[[bool], None] | None = closed
        self._whole: bytes | None = None
        self.head = head

    @property
    def length(self) -> int | None:
        """Bytes of the body, where all of it is there."""
        return None if self._whole is None else len(self._whole)

    async def read_whole(self) -> None:
        """Read the body to its end; `close` is called.

        Raises:
            ReplicaBroke: The server ended before the answer did; `closed` is not called then.
        """
        try:
            self._whole = b"".join([chunk async for chunk in self.chunks()])
        except BaseException:
            self._closed = None
            self._exchange.close()
            raise
        self.close()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes.

        Raises:
            ReplicaBroke: The server ended before the answer did.
        """
        if self._whole is not None:
            yield self._whole
            return
        while (chunk := await self._exchange.read_body()) is not None:
            yield chunk

    def close(self) -> None:
        """The caller has all of it, or wants no more."""
        self._exchange.close()
        closed, self._closed = self._closed, None
        if closed is not None:
            closed(self._exchange.is_complete)


async def pass_on(
    address: str,
    raw: bytes,
    headers: Iterable[tuple[bytes, bytes]],
    closed: Callable[[bool], None],
) -> PassedAnswer:
    """Send a request and wait for the answer's beginning; being cancelled closes the connection.

    Args:
        address: `host:port`.
        raw: The body.
        headers: The caller's; the token and most others are not passed on.
        closed: Called when the answer that is given back is over; not when this raises.

    Raises:
        ReplicaUnavailable: No connection.
        ReplicaBroke: The connection ended before the answer began.
    """
    exchange = await _Exchange.connect(address)
    try:
        exchange.send(address, raw, headers)
        head = await exchange.read_head()
    except BaseException:
        exchange.close()
        raise
    return PassedAnswer(exchange, head, closed)


async def pass_back(
    send: Send, passed: PassedAnswer, headers: Iterable[tuple[bytes, bytes]], watch: Watch
) -> None:
    """Send an answer to the caller as it comes, and close it.

    Where it breaks off, or its next piece does not come in time, the connection ends without the
    answer's end: that is all that HTTP has to tell him by then.
    """
    length = passed.length
    counted = () if length is None else ((b"content-length", str(length).encode()),)
    try:
        await send(
            {
                "type": "http.response.start",
                "status": passed.head.status,
                "headers": [*passed.head.headers, *headers, *counted, *DATA_HEADERS],
            }
        )
        async for chunk in passed.chunks():
            watch.go_on()
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except ReplicaBroke as exc:
        log.warning("an answer broke off: %s", exc.message)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if watch.cut is None or task is None:
            raise
        task.uncancel()
    finally:
        passed.close()


class _Exchange:
    """One connection with one request; collects what the parser finds."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_head = False
        self._chunks: list[bytes] = []
        self.is_complete = False

    @classmethod
    async def connect(cls, address: str) -> _Exchange:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, int(port))
        except (OSError, TimeoutError) as exc:
            raise ReplicaUnavailable("The replica does not accept connections.") from exc
        return cls(reader, writer)

    def send(self, address: str, raw: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        passed = b"".join(
            b"%s: %s\r\n" % (name, value)
            for name, value in headers
            if name in PASSED_REQUEST_HEADERS
        )
        head = (
            b"POST /invocations HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%sContent-Length: %d"
            b"\r\n\r\n" % (address.encode(), passed, len(raw))
        )
        self._writer.writelines((head, raw))

    async def read_head(self) -> PassedHead:
        while not self._has_head:
            await self._feed()
        content_type = length = b""
        for name, value in self._headers:
            if name == b"content-type":
                content_type = value
            elif name == b"content-length":
                length = value
        passed = tuple(pair for pair in self._headers if pair[0] in PASSED_ANSWER_HEADERS)
        return PassedHead(
            status=self._parser.get_status_code(),
            headers=passed,
            is_stream=content_type.lower().startswith(EVENTS) or not length,
        )

    async def read_body(self) -> bytes | None:
        """The next piece, None at the end."""
        while not self._chunks and not self.is_complete:
            await self._feed()
        if not self._chunks:
            return None
        chunks, self._chunks = self._chunks, []
        return b"".join(chunks)

    def close(self) -> None:
        if not self.is_complete:
            self._writer.transport.abort()
        self._writer.close()

    async def _feed(self) -> None:
        try:
            data = await self._reader.read(READ_BYTES)
            if data:
                self._parser.feed_data(data)
                return
        except (OSError, httptools.HttpParserError) as exc:
            raise ReplicaBroke("The replica's answer could not be read.") from exc
        if self._has_head and not self._has_bounds():
            self.is_complete = True  # it said neither its length nor its chunks: this is its end
            return
        raise ReplicaBroke("The replica closed the connection before it answered.")

    def _has_bounds(self) -> bool:
        return any(name in {b"content-length", b"transfer-encoding"} for name, _ in self._headers)

    # ---------------------------------------------------------------- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # such as 100 Continue: another head follows
            self._headers.clear()
        else:
            self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._has_head:
            self.is_complete = True
