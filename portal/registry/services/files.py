"""Files and directories: list, make, delete, and let a finished upload appear."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction

from portal.accounts.models import User
from portal.audit import services as audit
from portal.audit.services import Action, ObjectKind
from portal.registry.services.paging import page_token, read_page_token
from portal.registry.services.paths import FilePath, require_readable, require_writable
from portal.rest import (
    AlreadyExists,
    InvalidParameterValue,
    NotFound,
)

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a listing; sizes in bytes, times in milliseconds since 1970."""

    path: str
    name: str
    is_directory: bool
    size_bytes: int
    modified_ms: int


def list_directory(
    user: User, path: FilePath, *, page_size: int | None, token: str
) -> tuple[list[Entry], str]:
    """A page of a directory, by name, and the token of the next one ("" at the end).

    Raises:
        NotFound: It is missing or a file.
    """
    require_directory(user, path)
    after = read_page_token(token)
    names = sorted(name for name in os.listdir(path.location) if name > after)  # noqa: PTH208 - names only
    size = min(page_size or MAX_PAGE, MAX_PAGE)
    entries = []
    for name in names[:size]:
        with suppress(FileNotFoundError):
            entries.append(_entry(path, name))
    more = len(names) > size
    return entries, page_token(names[size - 1]) if more else ""


def _entry(folder: FilePath, name: str) -> Entry:
    status = (folder.location / name).lstat()
    is_directory = stat.S_ISDIR(status.st_mode)
    return Entry(
        path=f"{folder.shown}/{name}",
        name=name,
        is_directory=is_directory,
        size_bytes=0 if is_directory else status.st_size,
        modified_ms=status.st_mtime_ns // 10**6,
    )


def require_directory(user: User, path: FilePath) -> None:
    """Refuse what is no directory.

    Raises:
        NotFound: It is missing or a file.
    """
    require_readable(user, path)
    if not path.location.is_dir():
        raise NotFound(f"There is no directory {path.shown}.")


def require_file(user: User, path: FilePath) -> Path:
    """Where a file lies.

    Raises:
        NotFound: It is missing or a directory.
    """
    require_readable(user, path)
    if not path.location.is_file():
        raise NotFound(f"There is no file {path.shown}.")
    return path.location


@transaction.atomic
def create_directory(user: User, path: FilePath) -> None:
    """Make a directory with its parents; it may exist.

    Raises:
        AlreadyExists: A file is in the way.
    """
    require_writable(user, path, lock=True)
    if path.location.is_dir():
        return
    audit.record(Action.DIRECTORY_CREATE, ObjectKind.FILE, path.shown, user=user)
    try:
        path.location.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise AlreadyExists(f"A file is in the way of the directory {path.shown}.") from None


@transaction.atomic
def delete_directory(user: User, path: FilePath) -> None:
    """Remove an empty directory.

    Raises:
        NotFound: It is missing or a file.
        InvalidParameterValue: It is not empty.
    """
    require_directory(user, path)
    require_writable(user, path, lock=True)
    audit.record(Action.DIRECTORY_DELETE, ObjectKind.FILE, path.shown, user=user)
    try:
        path.location.rmdir()
    except FileNotFoundError:
        raise NotFound(f"There is no directory {path.shown}.") from None
    except OSError:
        raise InvalidParameterValue(
            f"The directory {path.shown} is not empty. Delete what is in it first."
        ) from None


@transaction.atomic
def delete_file(user: User, path: FilePath) -> None:
    """Delete a file.

    Raises:
        NotFound: It is missing or a directory.
    """
    require_file(user, path)
    require_writable(user, path, lock=True)
    audit.record(Action.FILE_DELETE, ObjectKind.FILE, path.shown, user=user)
    try:
        path.location.unlink()
    except FileNotFoundError:
        raise NotFound(f"There is no file {path.shown}.") from None


def require_uploadable(user: User, path: FilePath, *, overwrite: bool) -> None:
    """Refuse an upload before its bytes are taken; `appear` asks again.

    Raises:
        AlreadyExists: The file is there and is not to be overwritten.
        InvalidParameterValue: It is a directory.
    """
    require_writable(user, path)
    if path.is_root or path.location.is_dir():
        raise InvalidParameterValue(f"{path.shown} is a directory. Give the name of a file.")
    if not overwrite and path.location.exists():
        raise _exists(path)


@transaction.atomic
def appear(user: User, path: FilePath, finished: Path, *, overwrite: bool) -> None:
    """Let a finished upload appear at `path` at once, if `user` may still write there.

    Raises:
        AlreadyExists: The file is there and is not to be overwritten.
        InvalidParameterValue: A file or a directory is in the way.
        InvalidState: The model version was finalized meanwhile.
    """
    require_writable(user, path, lock=True)
    target = path.location
    size_bytes = finished.stat().st_size
    audit.record(Action.FILE_PUT, ObjectKind.FILE, path.shown, user=user, size_bytes=size_bytes)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        finished.chmod(0o444)
        if overwrite:
            finished.replace(target)
        else:
            target.hardlink_to(finished)
            finished.unlink()
    except FileExistsError:
        if target.exists():
            raise _exists(path) from None
        raise _in_the_way(path) from None
    except (NotADirectoryError, IsADirectoryError):
        raise _in_the_way(path) from None


def _exists(path: FilePath) -> AlreadyExists:
    return AlreadyExists(f"{path.shown} exists. Send overwrite=true to replace it.")


def _in_the_way(path: FilePath) -> InvalidParameterValue:
    return InvalidParameterValue(
        f"{path.shown} cannot be written: a file or a directory is in the way."
    )
