"""HTTP/1.1 to one replica over kept-alive connections, one request at a time on each.

Written by hand because it is the hot path: several times cheaper than aiohttp or gRPC for small
requests. It knows just what Triton and MLflow's server send: answers with a Content-Length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, cast

from serving.errors import ReplicaUnavailable
from serving.gateway.errors import ReplicaBroke

CONNECT_TIMEOUT_S = 2.0
MAX_HEAD_BYTES = 64 * 1024


class Reply(NamedTuple):
    """A replica's answer; `head` in small letters."""

    status: int
    head: bytes
    body: bytes


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
        connection = self._idle.pop() if self._idle else await self._connect()
        return await connection.exchange(pieces)

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


class _Connection(asyncio.Protocol):
    """One connection; at most one request is under way."""

    def __init__(self, pool: ReplicaPool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._chunks: list[bytes] = []
        self._received = 0
        self._wanted = -1  # bytes of the body; -1 until the head is complete
        self._status = 0
        self._head = b""

    async def exchange(self, pieces: Sequence[bytes]) -> Reply:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ReplicaBroke("The replica closed the connection.")
        self._answer = asyncio.get_running_loop().create_future()
        transport.writelines(pieces)
        try:
            return await self._answer
        except asyncio.CancelledError:
            transport.abort()
            raise

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
        if self._answer is None or self._answer.done():
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
        answer, head = self._answer, self._head
        is_reusable = len(body) == self._wanted and b"\r\nconnection: close" not in head
        self._answer, self._head, self._wanted, self._received = None, b"", -1, 0
        self._chunks.clear()
        if is_reusable:
            self._pool.take_back(self)
        else:
            self.close()
        if answer is not None:
            answer.set_result(Reply(self._status, head, body))

    def _break(self, message: str) -> None:
        self._fail(message)
        self.close()

    def _fail(self, message: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ReplicaBroke(message))
        self._answer = None


def _number(head: bytes, name: bytes) -> int:
    start = head.find(name)
    if start < 0:
        raise ValueError(f"the answer has no {name.decode().strip()}")
    start += len(name)
    return int(head[start : head.find(b"\r\n", start)])
