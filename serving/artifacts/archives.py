"""Look through a tar without unpacking it: is it safe and whole, what is in it, what is its hash.

Uncompressed tars only, as MLflow's `env_pack` writes them (regular files and folders, names that
start with `./`). Everything in them is taken for hostile. What the `tar` program would read
differently from Python (garbage between members, sparse files, giant headers) is refused, so that
the names checked here are the names that it unpacks.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, cast

from serving.artifacts.files import Progress, Reason, mib
from serving.errors import ArtifactError

BLOCK = 2**20
MAX_HEADER_BYTES = 2**20  # of one extended header, read into memory
MAX_MEMBERS = 1_000_000
MAX_NAME_BYTES = 2048
MAX_PART_BYTES = 255  # what file systems take
MAX_DEPTH = 100  # removing a folder goes down recursively
MAX_GLOBAL_HEADERS = 100
MAX_KEPT_BYTES = 65_536
DISK_BLOCK = 4096
PYTHON_FOLDER = re.compile(r"lib/python(\d+\.\d+)(?:/|$)")
EXTENSION = re.compile(r"\.cpython-(\d)(\d+)-([\w-]+)\.so$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What was found in a tar.

    Attributes:
        content_hash: SHA-256 (hex) over kinds, names, modes and contents, not over times; the
            second copy of `lib` is left out.
        size_bytes: What it unpacks to, without that copy.
        disk_bytes: What that takes on a disk, where the smallest file takes a block.
        entries: Files, folders and links that unpacking makes.
        names: The names directly under the root.
        python_versions: "3.11" for each `lib/python3.11`.
        platforms: Such as "x86_64-linux-gnu", from the names of extension modules.
        pyvenv_cfg: The text of that file, "" without one.
        has_standard_library: Versions whose standard library is in the tar.
        has_lib64_copy: `lib64` is a second copy of `lib`; leave it out when unpacking.
    """

    content_hash: str
    size_bytes: int
    disk_bytes: int
    entries: int
    names: frozenset[str]
    python_versions: frozenset[str]
    platforms: frozenset[str]
    pyvenv_cfg: str
    has_standard_library: frozenset[str]
    has_lib64_copy: bool


def inspect_archive(path: Path, progress: Progress, what: str = "archive") -> Archive:
    """Check the tar at `path` in one pass and say what is in it.

    Raises:
        ArtifactError: `UNSAFE_TAR` (it would write outside of its folder, or holds devices, links
            that leave it or sparse files) or `INCOMPLETE` (it is missing, cut off or not a tar).
    """
    try:
        with path.open("rb") as raw:
            return _Inspection(cast("IO[bytes]", _Bounded(raw)), progress, what).run()
    except FileNotFoundError:
        raise ArtifactError(Reason.INCOMPLETE, f"The {what}'s tar was not uploaded.") from None
    except RecursionError:
        raise _unsafe("it has chains of extended headers") from None
    except (tarfile.TarError, ValueError, OverflowError) as exc:  # the latter: absurd numbers
        raise ArtifactError(
            Reason.INCOMPLETE, f"The {what}'s tar is cut off or not a tar: {exc}."
        ) from exc


class _Bounded:
    """A file that is never asked for more than a header or a block at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= max(BLOCK, MAX_HEADER_BYTES):
            raise _unsafe("it has a header of more than 1 MiB, or of less than nothing")
        return self._file.read(size)


@dataclass(slots=True)
class _Inspection:
    file: IO[bytes]
    progress: Progress
    what: str
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    size_bytes: int = 0
    disk_bytes: int = 0
    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    python_versions: set[str] = field(default_factory=set)
    with_library: set[str] = field(default_factory=set)
    platforms: set[str] = field(default_factory=set)
    pyvenv_cfg: str = ""
    has_lib64_copy: bool = False
    told_at: float = 0.0

    def run(self) -> Archive:
        with tarfile.open(fileobj=self.file, mode="r:") as tar:
            for count, member in enumerate(self._members(tar)):
                if count >= MAX_MEMBERS:
                    raise _unsafe(f"it has more than {MAX_MEMBERS} members")
                if len(tar.pax_headers) > MAX_GLOBAL_HEADERS:
                    raise _unsafe("it has too many global headers")
                self._look_at(tar, member)
            self._refuse_what_follows(tar.offset)
        return Archive(
            content_hash=self.digest.hexdigest(),
            size_bytes=self.size_bytes,
            disk_bytes=self.disk_bytes,
            entries=len(self.files) + len(self.folders) + len(self.links),
            names=frozenset(
                name for name in self.files | self.folders | self.links if "/" not in name
            ),
            python_versions=frozenset(self.python_versions),
            platforms=frozenset(self.platforms),
            pyvenv_cfg=self.pyvenv_cfg,
            has_standard_library=frozenset(self.with_library),
            has_lib64_copy=self.has_lib64_copy,
        )

    @staticmethod
    def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
        while (member := tar.next()) is not None:
            cast("list[tarfile.TarInfo]", vars(tar)["members"]).clear()  # it grows with the tar
            yield member

    def _look_at(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = _safe_name(member.name)
        self._refuse_kind(member, name)
        if self.links and any(parent in self.links for parent in _parents(name)):
            raise _unsafe(f"{name} lies behind a link")
        if name == "lib64" or name.startswith("lib64/"):
            if member.isdir() and name == "lib64":
                self.has_lib64_copy = bool(self.python_versions)
            if self.has_lib64_copy:
                return
        self._remember(member, name)
        self.digest.update(
            b"%s\0%o\0%s\0%d\0" % (member.type, member.mode & 0o111, os.fsencode(name), member.size)
        )
        if member.isreg():
            self._read(tar, member, name)
        elif not member.isdir():
            self.digest.update(os.fsencode(member.linkname) + b"\0")

    def _refuse_kind(self, member: tarfile.TarInfo, name: str) -> None:
        if member.size < 0:
            raise _unsafe(f"{name} has less than nothing in it")
        if member.issparse():
            raise _unsafe(f"{name} is a sparse file")
        if member.issym():
            if len(member.linkname) > MAX_NAME_BYTES:
                raise _unsafe(f"the link {name} has a target that is too long")
            if name != "." and not _stays_inside(name, member.linkname):
                raise _unsafe(f"the link {name} leaves it")
        elif member.islnk():
            if _safe_name(member.linkname) not in self.files:
                raise _unsafe(f"the hard link {name} names no file before it")
        elif not (member.isdir() or member.isreg()):
            raise _unsafe(f"{name} is a device, a pipe or of an unknown kind")

    def _remember(self, member: tarfile.TarInfo, name: str) -> None:
        kind = self.folders if member.isdir() else self.links if member.issym() else self.files
        if any(
            name in other for other in (self.files, self.folders, self.links) if other is not kind
        ):
            raise _unsafe(f"{name} occurs as two different kinds")
        kind.add(name)
        if member.isreg():
            self.size_bytes += member.size
            self.disk_bytes += -(-member.size // DISK_BLOCK) * DISK_BLOCK
        else:
            self.disk_bytes += DISK_BLOCK
        if found := PYTHON_FOLDER.match(name):
            self.python_versions.add(found[1])
            if name == f"lib/python{found[1]}/os.py":
                self.with_library.add(found[1])
        if found := EXTENSION.search(name):
            self.platforms.add(found[3])

    def _read(self, tar: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> None:
        content = tar.extractfile(member)
        if content is None:
            raise _unsafe(f"{name} has no content")
        left = member.size
        while left:
            block = content.read(min(BLOCK, left))
            if not block:
                raise tarfile.ReadError("unexpected end of data")
            self.digest.update(block)
            left -= len(block)
            if name == "pyvenv.cfg" and member.size <= MAX_KEPT_BYTES:
                self.pyvenv_cfg += block.decode(errors="replace")
            now = time.monotonic()
            if now - self.told_at > 0.2:
                self.told_at = now
                self.progress(f"Checking the {self.what}: {mib(self.size_bytes)} read")

    def _refuse_what_follows(self, offset: int) -> None:
        """Only zeros may follow the last member, and at least one block of them."""
        self.file.seek(offset)
        seen = 0
        while block := self.file.read(BLOCK):
            if block.strip(b"\0"):
                raise _unsafe("there is garbage between or behind its members")
            seen += len(block)
        if seen < tarfile.BLOCKSIZE:
            raise tarfile.ReadError("its end is missing")


def _safe_name(name: str) -> str:
    """The name relative to the root, without `./`."""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise _unsafe(f"the name {name[:200]!r} leaves it")
    if (
        len(parts) > MAX_DEPTH
        or len(os.fsencode(name)) > MAX_NAME_BYTES
        or any(len(os.fsencode(part)) > MAX_PART_BYTES for part in parts)
    ):
        raise _unsafe(f"the name {name[:100]!r}... is too long or too deep")
    return "/".join(parts) or "."


def _parents(name: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(name).parents]


def _stays_inside(name: str, target: str) -> bool:
    """Whether a link climbs no higher than the root and climbs only at its beginning.

    A link's own folder is never behind a link (see `_look_at`), so its leading `..` are real, and
    nothing that it then descends into climbs again.
    """
    if not target or target.startswith("/") or "\0" in target:
        return False
    parts = [part for part in target.split("/") if part not in {"", "."}]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    return ".." not in parts[climbs:] and climbs <= name.count("/")


def _unsafe(why: str) -> ArtifactError:
    text = why.encode(errors="backslashreplace").decode()
    return ArtifactError(Reason.UNSAFE_TAR, f"The archive is not safe to unpack: {text}.")
