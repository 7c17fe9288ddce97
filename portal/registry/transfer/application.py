"""Routes calls to the streaming parts, or on to Django; maps what goes wrong."""

from __future__ import annotations

import logging

from django.db import DatabaseError

from portal.accounts.models import User
from portal.audit.context import Actor, bound_actor
from portal.audit.services import record_denied
from portal.audit.states import Via
from portal.registry.services.files import require_file
from portal.registry.services.links import TRANSFER_PREFIX, BadLink, Link, LinkKind, read_link
from portal.registry.services.paths import FilePath, parse_path
from portal.registry.transfer.call import Call, Disconnected
from portal.registry.transfer.downloading import send_file
from portal.registry.transfer.threads import find_active_user, in_database, token_of
from portal.registry.transfer.uploading import take_file, take_part
from portal.rest import (
    ApiError,
    EndpointNotFound,
    NotFound,
    PermissionDenied,
    TemporarilyUnavailable,
    Unauthenticated,
)
from serving.gateway.asgi import Receive, Scope, Send

log = logging.getLogger(__name__)

FILES_PREFIX = "/api/2.0/fs/files/"
STRANGERS_DRAIN_BYTES = 2**20
READING = ("GET", "HEAD")
UNAVAILABLE = "The server could not read or write the file just now; the same call may succeed."


async def transfer_application(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of the paths below `/api/2.0/fs/files/` and `/api/2.0/fs/transfer/`."""
    call = Call(scope, receive, send)
    if call.path.startswith(TRANSFER_PREFIX):
        await _guarded(call, is_link=True)
    elif call.path.startswith(FILES_PREFIX) and call.method in ("PUT", *READING):
        await _guarded(call, is_link=False)
    else:
        from portal.asgi import django_application  # it imports this module

        await django_application(scope, receive, send)


async def _guarded(call: Call, *, is_link: bool) -> None:
    """Run the call; whatever goes wrong becomes one answer the clients know, or an early end."""
    try:
        await (_by_link(call) if is_link else _by_token(call))
    except Disconnected:
        return
    except ApiError as exc:
        await _fail(call, exc)
    except FileNotFoundError:
        await _fail(call, NotFound("The file is not there any more."))
    except (OSError, DatabaseError) as exc:
        log.exception("a transfer failed")
        await _fail(call, TemporarilyUnavailable(UNAVAILABLE), exc)
    except Exception as exc:
        log.exception("a transfer failed for an unknown reason")
        await _fail(call, ApiError("Sorry, something went wrong here. Please report it."), exc)


async def _fail(call: Call, error: ApiError, cause: Exception | None = None) -> None:
    if call.is_started:
        raise cause or error  # the connection is cut: the client sees that bytes are missing
    try:
        is_stranger = isinstance(error, Unauthenticated)
        await call.drain(STRANGERS_DRAIN_BYTES) if is_stranger else await call.drain()
    except Disconnected:
        return
    await call.fail(error)


async def _by_token(call: Call) -> None:
    token = await token_of(call.headers.get("authorization", ""))
    path = parse_path(call.path.removeprefix(FILES_PREFIX))
    if call.method in READING:
        await send_file(call, await in_database(require_file, token.user, path))
        return
    overwrite = call.query.get("overwrite", "").lower() in {"true", "1"}
    actor = _actor(call, token.user, Via.TOKEN, token.public_id)
    await _take_file(call, actor, token.user, path, overwrite=overwrite)
    await call.answer(204)


def _actor(call: Call, user: User, via: Via, token_id: str = "") -> Actor:
    return Actor(
        user_id=user.pk,
        name=user.get_username(),
        via=via,
        token_id=token_id,
        address=call.address,
        request_id=call.request_id,
    )


async def _take_file(
    call: Call, actor: Actor, user: User, path: FilePath, *, overwrite: bool
) -> None:
    with bound_actor(actor):
        try:
            await take_file(call, user, path, overwrite=overwrite)
        except PermissionDenied:
            await in_database(record_denied, call.path, call.method)
            raise


async def _by_link(call: Call) -> None:
    try:
        link = read_link(call.path.removeprefix(TRANSFER_PREFIX))
    except BadLink:
        await call.drain(STRANGERS_DRAIN_BYTES)
        await call.deny_link("The signature of the request does not match")
        return
    if link.is_expired:
        await call.drain()
        await call.deny_link("Request has expired")
    elif link.kind == LinkKind.DOWNLOAD and call.method in READING:
        user = await in_database(find_active_user, link.user_pk)
        await send_file(call, await in_database(require_file, user, parse_path(link.path)))
    elif link.kind == LinkKind.PART and call.method == "PUT":
        etag = await take_part(call, link.session, link.number)
        await call.answer(200, {"etag": f'"{etag}"'})
    elif link.kind == LinkKind.UPLOAD and call.method == "PUT":
        await _upload_by_link(call, link)
    else:
        raise EndpointNotFound("This link is for another method.")


async def _upload_by_link(call: Call, link: Link) -> None:
    user = await in_database(find_active_user, link.user_pk)
    actor = _actor(call, user, Via.LINK)
    await _take_file(call, actor, user, parse_path(link.path), overwrite=True)
    await call.answer(200)
