"""HTTP/1.1 to one replica over kept-alive connections, one request at a time on each.

Written by hand because it is the hot path: several times cheaper than aiohttp or gRPC for small
requests. It knows just what Triton and MLflow's server send: answers with a Content-Length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, cast

from serving.errors import ReplicaUnavailable
from serving.gateway.errors import ReplicaBroke

CONNECT_TIMEOUT_S = 2.0
MAX_HEAD_BYTES = 64 * 1024


class Reply(NamedTuple):
    """A replica's answer; `head` in small letters."""

    status: int
    head: bytes
    body: bytes


Done = Callable[[Reply | ReplicaUnavailable], None]
"""Gets the answer, or why there is none; called once, from the event loop."""


class ReplicaPool:
    """The connections to one replica.

    Args:
        address: `host:port`.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        self._idle: list[_Connection] = []  # the newest last: it is the likeliest to be alive
        self._is_closed = False

    async def request(self, pieces: Sequence[bytes]) -> Reply:
        """Send one request and wait for its answer; being cancelled closes the connection.

        Raises:
            ReplicaUnavailable: No connection.
            ReplicaBroke: The connection ended before the answer was there.
        """
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def settle(reply: Reply | ReplicaUnavailable) -> None:
            if answer.done():
                return
            if isinstance(reply, Reply):
                answer.set_result(reply)
            else:
                answer.set_exception(reply)

        exchange = self.submit(pieces, settle)
        try:
            return await answer
        except asyncio.CancelledError:
            exchange.abort()
            raise

    def submit(self, pieces: Sequence[bytes], done: Done) -> Exchange:
        """Send one request and have `done` called with what came of it, without a task of its own.

        Never calls `done` before it returns.
        """
        exchange = Exchange(done)
        if self._idle:
            exchange.begin(self._idle.pop(), pieces)
        else:
            exchange.connect(self._connect(), pieces)
        return exchange

    def close(self) -> None:
        """Close the idle connections now, the others after their answer."""
        self._is_closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def take_back(self, connection: _Connection) -> None:
        """A connection has its answer and can be used again."""
        if self._is_closed:
            connection.close()
        else:
            self._idle.append(connection)

    def forget(self, connection: _Connection) -> None:
        """A connection has ended."""
        if connection in self._idle:
            self._idle.remove(connection)

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self), self._host, self._port
                )
        except (OSError, TimeoutError) as exc:
            raise ReplicaUnavailable("The replica does not accept connections.") from exc
        return connection


class Exchange:
    """One request under way."""

    __slots__ = ("_connecting", "_connection", "_done")

    def __init__(self, done: Done) -> None:
        self._done: Done | None = done
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[None] | None = None

    def abort(self) -> None:
        """Nobody wants the answer: close the connection; `done` is not called any more."""
        self._done = None
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.abort()

    def begin(self, connection: _Connection, pieces: Sequence[bytes]) -> None:
        """Send over a connection that is open."""
        self._connection = connection
        connection.send(pieces, self._finish)

    def connect(
        self, connecting: Coroutine[Any, Any, _Connection], pieces: Sequence[bytes]
    ) -> None:
        """Send as soon as there is a connection."""

        async def connect_and_begin() -> None:
            try:
                connection = await connecting
            except ReplicaUnavailable as exc:
                self._finish(exc)
            else:
                self.begin(connection, pieces)
            finally:
                self._connecting = None

        self._connecting = asyncio.get_running_loop().create_task(connect_and_begin())

    def _finish(self, reply: Reply | ReplicaUnavailable) -> None:
        done, self._done, self._connection = self._done, None, None
        if done is not None:
            done(reply)


class _Connection(asyncio.Protocol):
    """One connection; at most one request is under way."""

    def __init__(self, pool: ReplicaPool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._done: Done | None = None
        self._chunks: list[bytes] = []
        self._received = 0
        self._wanted = -1  # bytes of the body; -1 until the head is complete
        self._status = 0
        self._head = b""

    def send(self, pieces: Sequence[bytes], done: Done) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            broken = ReplicaBroke("The replica closed the connection.")
            asyncio.get_running_loop().call_soon(done, broken)
            return
        self._done = done
        transport.writelines(pieces)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pool.forget(self)
        self._fail("The replica closed the connection before it answered.")

    def data_received(self, data: bytes) -> None:
        if self._done is None:
            self.close()  # nobody asked for this
            return
        if self._wanted < 0:
            rest = self._read_head(data)
            if rest is None:
                return
            data = rest
        self._received += len(data)
        if self._received < self._wanted:
            self._chunks.append(data)
            return
        body = b"".join((*self._chunks, data)) if self._chunks else data
        self._finish(body)

    def _read_head(self, data: bytes) -> bytes | None:
        """Read the head when it is complete; gives the part of the body that came with it."""
        if self._head:
            data = self._head + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._head = data
            if len(data) > MAX_HEAD_BYTES:
                self._break("The replica's answer is not HTTP.")
            return None
        self._head = data[: end + 2].lower()
        try:
            self._status = int(self._head[9:12])
            self._wanted = _number(self._head, b"\r\ncontent-length:")
        except ValueError:
            self._break("The replica's answer is not HTTP with a length.")
            return None
        return data[end + 4 :]

    def _finish(self, body: bytes) -> None:
        done, head = self._done, self._head
        is_reusable = len(body) == self._wanted and b"\r\nconnection: close" not in head
        self._done, self._head, self._wanted, self._received = None, b"", -1, 0
        self._chunks.clear()
        if is_reusable:
            self._pool.take_back(self)
        else:
            self.close()
        if done is not None:
            done(Reply(self._status, head, body))

    def _break(self, message: str) -> None:
        self._fail(message)
        self.close()

    def _fail(self, message: str) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(ReplicaBroke(message))


def _number(head: bytes, name: bytes) -> int:
    start = head.find(name)
    if start < 0:
        raise ValueError(f"the answer has no {name.decode().strip()}")
    start += len(name)
    return int(head[start : head.find(b"\r\n", start)])
