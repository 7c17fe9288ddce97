"""Take bodies to the disk: whole files, and parts of multipart uploads."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from portal.accounts.models import User
from portal.registry.services.files import appear, require_uploadable
from portal.registry.services.parts import PartWriter
from portal.registry.services.paths import FilePath
from portal.registry.transfer.call import Call
from portal.registry.transfer.threads import in_database, on_disk
from portal.rest import InvalidParameterValue


async def take_file(call: Call, user: User, path: FilePath, *, overwrite: bool) -> None:
    """Take a whole file; it appears at once when it is complete, and not at all before."""
    await in_database(require_uploadable, user, path, overwrite=overwrite)
    temporary = Path(settings.UPLOADS_DIR) / f"put-{uuid.uuid4().hex}"
    out = await on_disk(_create, temporary)
    try:
        try:
            done = 0
            async for block in call.blocks():
                await on_disk(out.write, block)
                done += len(block)
        finally:
            await on_disk(out.close)
        _require_whole(call, done)
        await in_database(appear, user, path, temporary, overwrite=overwrite)
    finally:
        await on_disk(temporary.unlink, missing_ok=True)


def _create(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")


def _require_whole(call: Call, done: int) -> None:
    if call.content_length is not None and call.content_length != done:
        raise InvalidParameterValue(
            f"The body has {done} bytes; Content-Length says {call.content_length}. Send it again."
        )


async def take_part(call: Call, session: str, number: int) -> str:
    """Take a part of a multipart upload; gives its ETag.

    Raises:
        NotFound: The session has ended.
        Disconnected: The client went away; the part counts as not received.
    """
    writer = await on_disk(PartWriter, session, number, call.content_length)
    try:
        async for block in call.blocks():
            await on_disk(writer.write, block)
        _require_whole(call, writer.done)
        return await on_disk(writer.finish)
    finally:
        await on_disk(writer.close)
