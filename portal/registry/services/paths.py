"""Paths of the Files API: what they may be, where they lie, and who may write there."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from django.conf import settings

from portal.accounts.models import User
from portal.registry.models import ModelVersion
from portal.registry.services.access import may_write_version
from portal.registry.services.naming import LEVEL, VERSION, shown
from portal.registry.states import VersionStatus
from portal.rest import InvalidParameterValue, InvalidState, NotFound, PermissionDenied

MAX_SEGMENT_BYTES = 255
MAX_PATH_BYTES = 3000
MODELS, VOLUMES = "Models", "Volumes"
REPLACEMENT = "\ufffd"  # what an HTTP server puts where a path is not UTF-8


@dataclass(frozen=True)
class FilePath:
    """`Models/<catalog>/<schema>/<model>/<version>/...`, or `Volumes/...` with three levels.

    `segments` are checked: no `.` or `..`, no NUL, no slash, none empty.
    """

    segments: tuple[str, ...]

    def __str__(self) -> str:
        return "/".join(self.segments)

    @property
    def shown(self) -> str:
        """As the clients see it."""
        return f"/{self}"

    @property
    def is_of_a_model(self) -> bool:
        """Whether a model version's files are meant, not a volume's."""
        return self.segments[0] == MODELS

    @property
    def root(self) -> Path:
        """The folder of the model version or volume, which is there without being made."""
        return Path(settings.FILES_DIR, *self.segments[: 5 if self.is_of_a_model else 4])

    @property
    def is_root(self) -> bool:
        """Whether it is that folder itself."""
        return len(self.segments) == (5 if self.is_of_a_model else 4)

    @cached_property
    def location(self) -> Path:
        """Where it lies on the disk; no link is on the way.

        Raises:
            NotFound: A link is on the way.
        """
        here = Path(settings.FILES_DIR)
        for segment in self.segments:
            here = here / segment
            try:
                mode = here.lstat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                break
            if stat.S_ISLNK(mode):
                raise NotFound(f"There is nothing at {self.shown}.")
        return Path(settings.FILES_DIR, *self.segments)


def parse_path(text: str) -> FilePath:
    """A path as the clients write it, percent-decoded, with or without slashes at its ends.

    Raises:
        InvalidParameterValue: It cannot be a path here.
    """
    segments = tuple(text.removeprefix("/").removesuffix("/").split("/"))
    if len(text.encode(errors="replace")) > MAX_PATH_BYTES:
        raise InvalidParameterValue(f"The path is longer than {MAX_PATH_BYTES} bytes.")
    for segment in segments:
        _refuse_segment(segment, text)
    if segments[0] == MODELS:
        if len(segments) < 5 or not VERSION.fullmatch(segments[4]):
            raise _bad(text, "it must begin with /Models/<catalog>/<schema>/<model>/<version>")
        if not all(LEVEL.fullmatch(level) for level in segments[1:4]):
            raise _bad(text, "that cannot be a model's name")
    elif segments[0] == VOLUMES:
        if len(segments) < 4:
            raise _bad(text, "it must begin with /Volumes/<catalog>/<schema>/<volume>")
    else:
        raise _bad(text, "it must begin with /Models or /Volumes")
    return FilePath(segments)


def _refuse_segment(segment: str, text: str) -> None:
    if not segment or segment in {".", ".."}:
        raise _bad(text, "empty names, . and .. are not allowed")
    try:
        length = len(segment.encode())
    except UnicodeEncodeError:
        raise _bad(text, "it is not UTF-8") from None
    if length > MAX_SEGMENT_BYTES:
        raise _bad(text, f"a name has more than {MAX_SEGMENT_BYTES} bytes")
    if REPLACEMENT in segment or any(ord(c) < 32 or ord(c) == 127 for c in segment):
        raise _bad(text, "it has characters that no path may have")


def _bad(text: str, why: str) -> InvalidParameterValue:
    safe = text.encode(errors="replace").decode().replace("\x00", "")
    return InvalidParameterValue(f"{shown(safe)} is not a path: {why}.")


def version_of(user: User, path: FilePath, *, lock: bool = False) -> ModelVersion:
    """The model version that the path belongs to.

    Raises:
        NotFound: There is none, or none that `user` may read.
    """
    found = ModelVersion.objects.readable_by(user).select_related("model__owner", "creator")
    if lock:
        found = found.select_for_update(of=("self",))
    version = found.filter(
        model__name=".".join(path.segments[1:4]), version=int(path.segments[4])
    ).first()
    if version is None:
        raise NotFound(f"There is no model version at /{'/'.join(path.segments[:5])}.")
    return version


def require_writable(user: User, path: FilePath, *, lock: bool = False) -> None:
    """Refuse writes that `user` may not do, or that nobody may do now.

    Files of a model version are written by its creator, its model's owner and workspace admins,
    until it is finalized. Volumes belong to everybody in the workspace.

    Args:
        user: Who writes.
        path: What is written.
        lock: Hold the version's row, so that it cannot be finalized before the transaction ends.

    Raises:
        NotFound: There is no such model version.
        PermissionDenied: Not this user.
        InvalidState: The version is finalized, or its registration failed.
    """
    if not path.is_of_a_model:
        return
    version = version_of(user, path, lock=lock)
    if not may_write_version(user, version):
        raise PermissionDenied(
            f"Only the creator of {version}, the model's owner and workspace admins may write "
            "its files."
        )
    if version.status != VersionStatus.PENDING_REGISTRATION:
        raise InvalidState(
            f"{version} is {version.status}; its files can no longer change. "
            "Register a new version."
        )


def require_readable(user: User, path: FilePath) -> None:
    """Refuse what is not there for `user`: files of model versions that he may not read.

    Raises:
        NotFound: There is no such model version.
    """
    if path.is_of_a_model:
        version_of(user, path)
