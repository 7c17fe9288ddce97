"""The parts of one multipart upload on the disk: written in any order and at once, then joined.

A session's folder holds

    data            the file to be; part n lies at (n - 1) x part size
    part_size       fixed by part 1, which the clients send first and alone
    odd-<n>-<id>    a part that came before the size was known, or that does not fit its place
    parts/<n>       what was received whole: size, ETag and where it lies
    open            there while parts may be written; each block is written under a shared lock
                    of it, so that nothing writes any more once `seal` has removed it

No database is needed to take a part.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from portal.rest import InvalidParameterValue, NotFound, TemporarilyUnavailable

MAX_PARTS = 10_000
BLOCK = 2**20
DATA, PART_SIZE, PARTS, OPEN = "data", "part_size", "parts", "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part that was received whole; `file` is `data` or a file of its own."""

    number: int
    size_bytes: int
    etag: str
    file: str


def folder_of(token: str) -> Path:
    """A session's folder."""
    return Path(settings.UPLOADS_DIR) / token


def make_folder(token: str) -> None:
    """Make a session's folder, ready for parts."""
    folder = folder_of(token)
    (folder / PARTS).mkdir(parents=True)
    (folder / DATA).touch()
    (folder / OPEN).touch()


class PartWriter:
    """Writes one part to its place; used from threads, one call after the other.

    Raises:
        NotFound: There is no such session, or it has ended.
    """

    def __init__(self, token: str, number: int, size_bytes: int | None) -> None:
        self.folder = folder_of(token)
        self.number = number
        self.size_bytes = size_bytes
        self.digest = hashlib.blake2b(digest_size=16)
        self.done = 0
        try:
            self.marker = os.open(self.folder / OPEN, os.O_RDONLY)
        except FileNotFoundError:
            raise NotFound("The upload session does not exist or has ended.") from None
        try:
            self.file, self.offset = self._place()
            flags = os.O_WRONLY | (0 if self.file == DATA else os.O_CREAT)
            self.out = os.open(self.folder / self.file, flags, 0o600)
        except OSError:
            os.close(self.marker)
            raise

    def _place(self) -> tuple[str, int]:
        size = self.size_bytes
        if self.number == 1 and size:
            self._fix_part_size(size)
        fixed = _fixed_part_size(self.folder)
        fits = size == fixed if self.number == 1 else size is not None and size <= fixed
        if fixed and fits:
            return DATA, (self.number - 1) * fixed
        return f"odd-{self.number}-{uuid.uuid4().hex}", 0

    def _fix_part_size(self, size: int) -> None:
        written = self.folder / f"part_size-{uuid.uuid4().hex}"
        written.write_text(str(size))
        with suppress(FileExistsError):
            (self.folder / PART_SIZE).hardlink_to(written)
        written.unlink()

    def write(self, block: bytes | bytearray) -> None:
        """Write the next bytes."""
        if self.size_bytes is not None and self.done + len(block) > self.size_bytes:
            raise InvalidParameterValue("The part is longer than its Content-Length.")
        fcntl.flock(self.marker, fcntl.LOCK_SH)
        try:
            if os.fstat(self.marker).st_nlink == 0:
                raise NotFound("The upload session has ended.")
            view = memoryview(block)
            while view:
                written = os.pwrite(self.out, view, self.offset + self.done)
                self.done += written
                view = view[written:]
        finally:
            fcntl.flock(self.marker, fcntl.LOCK_UN)
        self.digest.update(block)

    def finish(self) -> str:
        """Note that the part is whole; gives its ETag."""
        etag = self.digest.hexdigest()
        part = {"size_bytes": self.done, "etag": etag, "file": self.file}
        written = self.folder / f"note-{uuid.uuid4().hex}"
        try:
            written.write_text(json.dumps(part))
            written.replace(self.folder / PARTS / str(self.number))
        except FileNotFoundError:
            raise NotFound("The upload session has ended.") from None
        return etag

    def close(self) -> None:
        """Let go of the files."""
        os.close(self.out)
        os.close(self.marker)


def _fixed_part_size(folder: Path) -> int:
    try:
        return int((folder / PART_SIZE).read_text())
    except FileNotFoundError:
        return 0


def seal(token: str, wanted: Sequence[tuple[int, str]]) -> Path:
    """End the writing and give the whole file; asked again, it gives it again.

    Args:
        token: The session.
        wanted: Number and ETag of each part, ascending from 1.

    Raises:
        InvalidParameterValue: A part is missing, or was received with another ETag.
        NotFound: The session has ended.
        TemporarilyUnavailable: Somebody else is completing it at this moment.
    """
    folder = folder_of(token)
    parts = [_received(folder, number, etag) for number, etag in wanted]
    if [part.number for part in parts] != list(range(1, len(parts) + 1)):
        raise InvalidParameterValue("parts must be numbered 1, 2, 3 and so on, in this order.")
    with suppress(FileNotFoundError), (folder / OPEN).open("rb") as marker:
        fcntl.flock(marker, fcntl.LOCK_EX)
        (folder / OPEN).unlink(missing_ok=True)
    data = folder / DATA
    if not data.exists():
        raise TemporarilyUnavailable("The upload is being completed by another request.")
    if _lies_in_place(folder, parts):
        os.truncate(data, sum(part.size_bytes for part in parts))
        return data
    return _join(folder, parts)


def _received(folder: Path, number: int, etag: str) -> Part:
    try:
        note = json.loads((folder / PARTS / str(number)).read_text())
    except FileNotFoundError:
        if not folder.is_dir():
            raise NotFound("The upload session does not exist or has ended.") from None
        raise InvalidParameterValue(f"Part {number} was not received.") from None
    if note["etag"] != etag.removeprefix("W/").strip('"'):
        raise InvalidParameterValue(f"Part {number} was received with another ETag. Send it again.")
    return Part(number=number, **note)


def _lies_in_place(folder: Path, parts: Sequence[Part]) -> bool:
    fixed = _fixed_part_size(folder)
    return all(part.file == DATA for part in parts) and all(
        part.size_bytes == fixed for part in parts[:-1]
    )


def _join(folder: Path, parts: Sequence[Part]) -> Path:
    """The slow way, for parts of unequal sizes or that came before part 1."""
    fixed = _fixed_part_size(folder)
    joined = folder / f"joined-{uuid.uuid4().hex}"
    with joined.open("wb") as out, (folder / DATA).open("rb") as data:
        for part in parts:
            if part.file == DATA:
                data.seek((part.number - 1) * fixed)
                _copy(data.fileno(), out.fileno(), part.size_bytes)
            else:
                with (folder / part.file).open("rb") as odd:
                    _copy(odd.fileno(), out.fileno(), part.size_bytes)
    return joined


def _copy(source: int, target: int, size_bytes: int) -> None:
    position = os.lseek(source, 0, os.SEEK_CUR)
    left = size_bytes
    while left:
        copied = os.sendfile(target, source, position, min(left, 2**30))
        if copied == 0:
            raise OSError("a part is shorter than was noted")
        position += copied
        left -= copied


def remove_folder(token: str) -> None:
    """Remove what is left of a session."""
    shutil.rmtree(folder_of(token), ignore_errors=True)
