"""Send files: whole, or a range of their bytes to clients that go on after a broken connection."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path

from portal.registry.transfer.call import BLOCK, Call
from portal.registry.transfer.threads import on_disk
from portal.rest import ApiError, InvalidParameterValue

RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class PreconditionFailed(ApiError):
    """The file is another one than the client began to download."""

    code = "PRECONDITION_FAILED"
    status = 412


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `first` to `last`, both included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many they are."""
        return self.last - self.first + 1


async def send_file(call: Call, location: Path) -> None:
    """Answer with a file's bytes, or with its headers alone to HEAD.

    Raises:
        FileNotFoundError: It went away meanwhile.
        InvalidParameterValue: The range lies behind its end.
        PreconditionFailed: It changed since `If-Unmodified-Since`.
    """
    file = await on_disk(os.open, location, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        status = await on_disk(os.fstat, file)
        _refuse_changed(call, status.st_mtime)
        span = asked_span(call.headers.get("range", ""), status.st_size)
        headers = {
            "content-type": "application/octet-stream",
            "content-disposition": "attachment",
            "accept-ranges": "bytes",
            "last-modified": formatdate(int(status.st_mtime), usegmt=True),
            "etag": f'"{status.st_mtime_ns:x}-{status.st_size:x}"',
            "cache-control": "private, no-cache",
        }
        whole = span or Span(0, status.st_size - 1)
        headers["content-length"] = str(whole.size)
        if span is not None:
            headers["content-range"] = f"bytes {span.first}-{span.last}/{status.st_size}"
        await call.start(206 if span else 200, headers)
        if call.method == "HEAD":
            await call.send({"type": "http.response.body"})
        else:
            await _send_span(call, file, whole)
    finally:
        await on_disk(os.close, file)


async def _send_span(call: Call, file: int, span: Span) -> None:
    gone = asyncio.create_task(_wait_until_gone(call))
    try:
        position = span.first
        while position <= span.last and not gone.done():
            block = await on_disk(os.pread, file, min(BLOCK, span.last + 1 - position), position)
            if not block:
                raise OSError("the file became shorter while it was sent")
            position += len(block)
            await call.send({"type": "http.response.body", "body": block, "more_body": True})
        await call.send({"type": "http.response.body"})
    finally:
        gone.cancel()


async def _wait_until_gone(call: Call) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass


def asked_span(header: str, size: int) -> Span | None:
    """The one range that is asked for; None for the whole file, also where `header` is odd.

    Raises:
        InvalidParameterValue: It begins behind the end of the file.
    """
    found = RANGE.fullmatch(header.strip())
    if found is None or not (found[1] or found[2]) or size == 0:
        return None
    if not found[1]:
        return Span(max(0, size - int(found[2])), size - 1) if int(found[2]) else None
    first, last = int(found[1]), min(int(found[2] or size - 1), size - 1)
    if first >= size:
        raise InvalidParameterValue(f"The range begins at {first}; the file has {size} bytes.")
    return Span(first, last) if first <= last else None


def _refuse_changed(call: Call, modified: float) -> None:
    text = call.headers.get("if-unmodified-since", "")
    if not text:
        return
    try:
        since = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return
    if int(modified) > since:
        raise PreconditionFailed("The file changed since the download began. Begin again.")
