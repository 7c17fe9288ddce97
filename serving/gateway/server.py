"""Uvicorn's HTTP protocol, with the gateway's short way before the ASGI application.

A request that may take it is held back until it is whole. Some clients send head and body in one
packet, others the body right behind. A request that is large, or not whole in a moment, or that the
lane does not take, goes on as if nothing had been.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.gateway.lane import MAX_BYTES, Lane, Passage

PREFIX = b"/serving-endpoints/"
SUFFIXES = (b"/invocations", b"/infer")
HOLD_S = 0.1
"""How long the rest of a small body is waited for, before its reader has to be set up."""


class _Silent:
    """An event that nobody waits for."""

    def set(self) -> None:
        pass


class _Cycle:
    """Stands where Uvicorn looks for the request under way."""

    __slots__ = ("disconnected", "keep_alive", "message_event", "response_complete")

    def __init__(self) -> None:
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True
        self.message_event = _Silent()


class LaneProtocol(HttpToolsProtocol):
    """Offers requests to the lane of the application, where that has one (`application.lane`)."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._lane: Lane | None = getattr(self.app, "lane", None)
        self._held: list[bytes] | None = None
        self._held_bytes = 0
        self._hold: asyncio.TimerHandle | None = None
        self._passage: Passage | None = None
        self._own = _Cycle()  # the passage's; `self.cycle` may be of a request behind it

    def on_headers_complete(self) -> None:
        """Hold a request back that may take the short way."""
        if self._lane is not None and self._may_enter():
            self._held, self._held_bytes = [], 0
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Keep what belongs to the request that is held back."""
        if self._held is None:
            super().on_body(body)
        else:
            self._held.append(body)
            self._held_bytes += len(body)

    def on_message_complete(self) -> None:
        """The request is whole: offer it."""
        held = self._let_go()
        if held is None:
            super().on_message_complete()
            return
        if not self._enter(b"".join(held)):
            self._go_the_usual_way(held)
            super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """A request whose body is still to come is held back for a moment, if it may be small."""
        super().data_received(data)
        if self._held is None:
            return
        if self._held_bytes > MAX_BYTES:
            self._hold_no_longer()
        elif self._hold is None:
            self._hold = self.loop.call_later(HOLD_S, self._hold_no_longer)

    def shutdown(self) -> None:
        """The server is about to stop: what has begun to arrive is answered first."""
        self._hold_no_longer()
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits for the answer any more."""
        self._let_go()
        if self._passage is not None:
            self._passage.cancel()
            self._passage = None
        super().connection_lost(exc)

    @property
    def is_between_requests(self) -> bool:
        """Whether one was answered, and no other's head is there."""
        return bool(self._held is None and self.cycle and self.cycle.response_complete)

    def _may_enter(self) -> bool:
        parser = self.parser
        return bool(
            self.url.endswith(SUFFIXES)
            and self.url.startswith(PREFIX)
            and parser.get_method() == b"POST"
            and (self.cycle is None or self.cycle.response_complete)
            and parser.should_keep_alive()
            and not self.expect_100_continue
            and not parser.should_upgrade()
        )

    def _enter(self, body: bytes) -> bool:
        lane = self._lane
        if lane is None:
            return False
        self._passage = lane.enter(self.url, self.headers, body, self._answer)
        if self._passage is None:
            return False
        self._own = _Cycle()
        self.cycle = self._own  # type: ignore[assignment]  # it has what Uvicorn asks for
        return True

    def _let_go(self) -> list[bytes] | None:
        """What was held back of the body; None where nothing was."""
        held, self._held = self._held, None
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None
        return held

    def _hold_no_longer(self) -> None:
        held = self._let_go()
        if held is not None and not self.transport.is_closing():
            self._go_the_usual_way(held)

    def _go_the_usual_way(self, held: list[bytes]) -> None:
        super().on_headers_complete()
        for piece in held:
            super().on_body(piece)

    def _answer(self, head: bytes, body: bytes) -> None:
        self._passage = None
        self._own.response_complete = True
        if self.transport.is_closing():
            return
        pieces = [head]
        pieces += [b"%s: %s\r\n" % pair for pair in self.server_state.default_headers]
        if not self._own.keep_alive:  # the server is about to stop
            pieces.append(b"connection: close\r\n")
        pieces += [b"\r\n", body]
        self.transport.write(b"".join(pieces))
        if not self._own.keep_alive:
            self.transport.close()
        self.on_response_complete()
