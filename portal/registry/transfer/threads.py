"""Threads for the disk and the database, and whom a token stands for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

from portal.accounts.authentication import sha256
from portal.accounts.models import PersonalAccessToken, User
from portal.rest import Unauthenticated

P = ParamSpec("P")
T = TypeVar("T")

DISK = ThreadPoolExecutor(max_workers=32, thread_name_prefix="transfer-disk")
DATABASE = ThreadPoolExecutor(max_workers=8, thread_name_prefix="transfer-database")
TOKEN_KEPT_S = 1.0
MAX_TOKENS_KEPT = 1000

_tokens: dict[str, tuple[float, PersonalAccessToken]] = {}


async def on_disk(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what waits for the disk."""
    return await asyncio.get_running_loop().run_in_executor(DISK, partial(work, *args, **kwargs))


async def in_database(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what waits for the database, on a connection that still works, as the call's actor."""
    context = copy_context()

    def with_connection() -> T:
        close_old_connections()
        try:
            return context.run(partial(work, *args, **kwargs))
        finally:
            close_old_connections()

    return await asyncio.get_running_loop().run_in_executor(DATABASE, with_connection)


async def token_of(authorization: str) -> PersonalAccessToken:
    """The token in `Authorization: Bearer ...`, with its user; kept for a second.

    Raises:
        Unauthenticated: There is no token, or it is unknown, expired or revoked.
    """
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "bearer" or not value.strip():
        raise Unauthenticated("Send Authorization: Bearer <token>.")
    key = sha256(value.strip())
    now = time.monotonic()
    kept = _tokens.get(key)
    if kept is not None and now - kept[0] < TOKEN_KEPT_S:
        return kept[1]
    token = await in_database(_find_token, key)
    if token is None:
        raise Unauthenticated("The token is unknown, expired or revoked.")
    if len(_tokens) >= MAX_TOKENS_KEPT:
        _tokens.clear()
    _tokens[key] = (now, token)
    return token


def _find_token(key: str) -> PersonalAccessToken | None:
    return PersonalAccessToken.objects.usable().select_related("user").filter(sha256=key).first()


def find_active_user(pk: int) -> User:
    """The user that a link was made for.

    Raises:
        Unauthenticated: He is gone or may not log in any more.
    """
    user = User.objects.filter(pk=pk, is_active=True).first()
    if user is None:
        raise Unauthenticated("The user that this link was made for may not log in any more.")
    return user
