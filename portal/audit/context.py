"""Who acts now: bound once at the entry (a request, a command), read where an act is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal import rest
from portal.audit.states import Via

MAX_ADDRESS = 64

_request: ContextVar[HttpRequest | None] = ContextVar("audit_request", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts, and from where; without a user it is the system, the console, or a stranger."""

    user_id: int | None = None
    name: str = ""
    via: Via
    token_id: str = ""
    address: str = ""
    request_id: str = ""


_actor: ContextVar[Actor | None] = ContextVar("audit_actor", default=None)


@contextmanager
def bound_request(request: HttpRequest) -> Iterator[None]:
    """Let what happens inside count as the request's; cleared at the end."""
    mark = _request.set(request)
    try:
        yield
    finally:
        _request.reset(mark)


@contextmanager
def acting_as(via: Via) -> Iterator[None]:
    """Let what happens inside, without a request, count as `via`'s."""
    with bound_actor(Actor(via=via)):
        yield


@contextmanager
def bound_actor(actor: Actor) -> Iterator[None]:
    """Let what happens inside, without a request of Django's, count as this actor's."""
    mark = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(mark)


def current_actor() -> Actor:
    """Who acts now. A task acts as the system: what a person asked for was recorded then."""
    request = _request.get()
    if request is None:
        return _actor.get() or Actor(via=Via.SYSTEM)
    # REST framework puts the token's user, and the token as `auth`, onto Django's request too.
    user: Any = getattr(request, "user", None)
    token = getattr(request, "auth", None)
    is_known = bool(user and user.is_authenticated)
    return Actor(
        user_id=user.pk if is_known else None,
        name=user.get_username() if is_known else "",
        via=Via.NOBODY if not is_known else Via.SESSION if token is None else Via.TOKEN,
        token_id=str(getattr(token, "public_id", "")),
        address=str(request.META.get("REMOTE_ADDR", ""))[:MAX_ADDRESS],
        request_id=rest.request_id(request),
    )
