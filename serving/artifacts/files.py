"""Common ground of the store: reasons, locks, folders that appear whole, programs with a limit."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import IO

from serving.errors import ArtifactError
from serving.lifetime import die_with_parent

Progress = Callable[[str], None]
"""Told several times a second, in one sentence, what is being done; it may raise to stop it."""

LOCKS = ".locks"
TEMPORARY = ".tmp-"
SPARE_BYTES = 256 * 2**20  # what must stay free on the disk
SPARE_ENTRIES = 10_000  # likewise


class Reason(StrEnum):
    """Why an artefact cannot be used."""

    UNSAFE_TAR = "UNSAFE_TAR"
    INCOMPLETE = "INCOMPLETE"
    PYTHON_NOT_AVAILABLE = "PYTHON_NOT_AVAILABLE"
    WRONG_PLATFORM = "WRONG_PLATFORM"
    ENVIRONMENT_DOES_NOT_IMPORT = "ENVIRONMENT_DOES_NOT_IMPORT"
    ENVIRONMENT_DOES_NOT_BUILD = "ENVIRONMENT_DOES_NOT_BUILD"
    NO_SPACE = "NO_SPACE"


# ---------------------------------------------------------------- locks


@contextmanager
def locked(root: Path, name: str, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of `name` under `root`; calls `waiting` several times a second until then.

    The kernel lets go of it when the process dies, whatever the way.
    """
    with _lock_file(root, name) as file:
        while not _try_lock(file):
            waiting()
            time.sleep(0.2)
        yield


@contextmanager
def lock_if_free(root: Path, name: str) -> Iterator[bool]:
    """Hold the lock of `name` if nobody else does; gives whether we hold it."""
    with _lock_file(root, name) as file:
        yield _try_lock(file)


def _lock_file(root: Path, name: str) -> IO[bytes]:
    folder = root / LOCKS
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / name).open("ab")


def _try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# ---------------------------------------------------------------- folders


@contextmanager
def folder_that_appears(root: Path, name: str) -> Iterator[Path]:
    """Give a temporary sibling of `root / name`, renamed to it at the end, removed on an error.

    The caller holds the lock of `name`.

    Raises:
        ArtifactError: `NO_SPACE`, when the disk is full.
    """
    for left_over in root.glob(f"{TEMPORARY}{name}-*"):
        remove_tree(left_over)
    temporary = root / f"{TEMPORARY}{name}-{uuid.uuid4().hex[:8]}"
    temporary.mkdir(parents=True)
    try:
        yield temporary
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        temporary.rename(root / name)
    except OSError as exc:
        if exc.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise no_space() from exc
        raise
    finally:
        remove_tree(temporary)


def remove_tree(path: Path) -> None:
    """Delete a folder with all that is in it, also where its modes forbid that; it may be gone."""

    def mend(function: Callable[[str], object], failed: str, _: object) -> None:
        with suppress(OSError):
            Path(failed).parent.chmod(0o700)
            Path(failed).chmod(0o700)
            function(failed)

    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    elif path.exists():
        shutil.rmtree(path, onerror=mend)


def collect(root: Path, is_wanted: Callable[[str], bool]) -> list[str]:
    """Remove what nobody works on and nobody wants: gives the names that went.

    Temporary folders go when their name's lock is free. A finished folder goes when `is_wanted`,
    asked while the lock is held, says no.
    """
    if not root.is_dir():
        return []
    gone = []
    for path in sorted(root.iterdir()):
        is_temporary = path.name.startswith(TEMPORARY)
        name = path.name.removeprefix(TEMPORARY).rpartition("-")[0] if is_temporary else path.name
        if not name or name.startswith(".") or not path.is_dir():
            continue
        with lock_if_free(root, name) as is_ours:
            if not is_ours or (not is_temporary and is_wanted(name)):
                continue
            if not is_temporary:
                hidden = root / f"{TEMPORARY}{name}-{uuid.uuid4().hex[:8]}"
                path.rename(hidden)
                path = hidden
            remove_tree(path)
            gone.append(name)
    return gone


def settle_modes(root: Path) -> None:
    """Refuse what is not a file, a folder or a link that stays inside; make the rest ours to use.

    The second line behind `inspect_archive`: it looks at what really came out.

    Raises:
        ArtifactError: `UNSAFE_TAR`.
    """
    inside = f"{root.resolve()}/"
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                if not f"{path.resolve()}/".startswith(inside):
                    raise ArtifactError(Reason.UNSAFE_TAR, f"The link {name} leaves the archive.")
            elif stat.S_ISDIR(mode):
                path.chmod(stat.S_IMODE(mode) & 0o777 | 0o700)
            elif stat.S_ISREG(mode):
                path.chmod(stat.S_IMODE(mode) & 0o777 | 0o600)
            else:
                raise ArtifactError(Reason.UNSAFE_TAR, f"{name} is a device or a pipe.")


def need_space(root: Path, size_bytes: int, entries: int = 0) -> None:
    """Refuse what the disk has no room for, in bytes or in files.

    Raises:
        ArtifactError: `NO_SPACE`.
    """
    free = shutil.disk_usage(root).free
    if free < size_bytes + SPARE_BYTES:
        raise ArtifactError(
            Reason.NO_SPACE,
            f"Unpacking needs {mib(size_bytes + SPARE_BYTES)}; {mib(free)} are free on the "
            "server's disk. Ask an admin to make room, then stage the version again.",
        )
    inodes = os.statvfs(root)
    if inodes.f_files and inodes.f_favail < entries + SPARE_ENTRIES:
        raise ArtifactError(
            Reason.NO_SPACE,
            f"Unpacking makes {entries} files; the server's disk has room for "
            f"{inodes.f_favail}. Ask an admin to make room, then stage the version again.",
        )


def no_space() -> ArtifactError:
    """The disk ran full while working."""
    return ArtifactError(
        Reason.NO_SPACE,
        "The server's disk is full. Ask an admin to make room, then stage the version again.",
    )


def mib(size_bytes: int) -> str:
    """A size for people."""
    return f"{size_bytes / 2**20:.0f} MiB"


# ---------------------------------------------------------------- programs


def run(
    arguments: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    limit_s: float,
    waiting: Callable[[float], None],
    directory: Path | None = None,
    output: IO[bytes] | None = None,
) -> tuple[int | None, str]:
    """Run a program; gives its exit status (None: it ran past `limit_s`) and the end of its output.

    Calls `waiting` with the seconds so far, several times a second. The program and its children
    end with this call, also when `waiting` raises.
    """
    with tempfile.TemporaryFile() if output is None else output as file:
        started = time.monotonic()
        process = subprocess.Popen(
            [str(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
        try:
            status = _wait(process, started, limit_s, waiting)
        finally:
            end_group(process)
        return status, _tail(file) if output is None else ""


def _wait(
    process: subprocess.Popen[bytes],
    started: float,
    limit_s: float,
    waiting: Callable[[float], None],
) -> int | None:
    while True:
        try:
            return process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            elapsed = time.monotonic() - started
            waiting(elapsed)
            if elapsed > limit_s:
                return None


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a program's process group, and reap the program."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(file: IO[bytes], size: int = 8192) -> str:
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - size))
    return file.read().decode(errors="replace").replace("\x00", "")


def plain_environment(directory: Path) -> dict[str, str]:
    """Variables for programs of an unpacked environment: nothing of ours leaks into them."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name.lower().endswith("_proxy") or name.startswith("SSL_CERT")
    }
    return kept | {
        "PATH": f"{directory / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "HOME": tempfile.gettempdir(),
        "LANG": "C.UTF-8",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONNOUSERSITE": "1",
    }
