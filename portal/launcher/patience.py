"""Uvicorn's HTTP protocol with a bound on how long a request's head may take to arrive.

The gateway bounds bodies and answers itself; of a connection that never completes a head it hears
nothing. The kernel bounds how long an answer may wait for a caller who does not read.
"""

from __future__ import annotations

import asyncio
import socket

from serving.gateway.server import LaneProtocol

UNREAD_S = 120
"""An answer that makes no way at all for so long is thrown away with its connection."""


class PatientProtocol(LaneProtocol):
    """Ends a connection whose next head has begun, or which is new, and is not whole in time."""

    head_timeout_s = 60.0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first head."""
        super().connection_made(transport)  # type: ignore[arg-type]  # see above
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Wait for the head that these bytes begin, unless they complete it."""
        super().data_received(data)
        if self._head_timer is None and self.is_between_requests:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """There is nothing to wait for any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


def bound_unread_answers(listener: socket.socket) -> None:
    """Let the kernel end connections, accepted from this socket, whose caller does not read."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_S * 1000)
