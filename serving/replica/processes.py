"""Start processes that die with the supervisor, look at them, and leave none behind (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from serving.lifetime import die_with_parent
from serving.replica.environment import MARK

PROC = Path("/proc")
PR_SET_CHILD_SUBREAPER = 36
END_TIMEOUT_S = 5.0
TCP_TABLES = (PROC / "net" / "tcp", PROC / "net" / "tcp6")
ESTABLISHED, LISTENING = "01", "0A"

# PyDLL keeps the interpreter's lock: between fork and exec nobody could give it back.
_prctl = ctypes.PyDLL(None).prctl


def spawn(
    command: Sequence[str], *, environment: Mapping[str, str], directory: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, stdout and stderr in one pipe.

    It is killed when this process dies, however that happens. The kernel ties that to the thread
    that starts it, so only the main thread may.
    """
    return subprocess.Popen(
        command,
        env=dict(environment),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent(),  # nothing in it takes a lock, so threads do no harm
    )


def adopt_orphans() -> None:
    """Let orphans below this process become its children, so that it can reap them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def children(pid: int) -> list[int]:
    """Give the direct children of a process; none when it is gone."""
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit() and _stat(int(entry.name))[1] == pid:
            found.append(int(entry.name))
    return found


def is_dead(pid: int) -> bool:
    """Whether the process is gone or a zombie."""
    return _stat(pid)[0] in ("", "Z", "X")


def is_stopped(pid: int) -> bool:
    """Whether the process was stopped (SIGSTOP) and goes on when told to; a debugger's is not."""
    return _stat(pid)[0] == "T"


def cpu_seconds(pid: int) -> float:
    """Processor seconds that the process and everything below it have used; 0 when it is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0.0
    user, system = text.rpartition(")")[2].split()[11:13]
    own = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(child) for child in children(pid))


def exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """Give the process's exit code as shells write it (137 for SIGKILL); None while it runs."""
    code = process.poll()
    return 128 - code if code is not None and code < 0 else code


def is_listening(pid: int, port: int) -> bool:
    """Whether the process holds a socket that listens on the TCP port.

    An answer alone would not tell: another server may have taken the port.
    """
    try:
        sockets = {socket for socket, at in _sockets(LISTENING) if at == port}
        return not sockets.isdisjoint(_open_sockets(pid))
    except OSError:
        return True  # this system does not show it; the answer must do


def listening_ports(pids: Sequence[int]) -> set[int]:
    """The TCP ports that any of the processes listens on."""
    held: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has just ended
            held |= _open_sockets(pid)
    return {port for socket, port in _sockets(LISTENING) if socket in held}


def is_connected(port: int) -> bool:
    """Whether anybody is connected to the TCP port."""
    return any(at == port for _, at in _sockets(ESTABLISHED))


def _sockets(state: str) -> list[tuple[str, int]]:
    """Sockets in this state, as a process's open files name them, and their own port."""
    rows = [line.split() for table in TCP_TABLES for line in table.read_text().splitlines()[1:]]
    return [
        (f"socket:[{row[9]}]", int(row[1].rpartition(":")[2], 16))
        for row in rows
        if row[3] == state
    ]


def _open_sockets(pid: int) -> set[str]:
    found = set()
    for entry in (PROC / str(pid) / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed in the meantime
            found.add(str(entry.readlink()))
    return found


def end_marked(directory: Path) -> bool:
    """Kill every process of the replica's server, also those that lost their parent.

    Returns:
        Whether there were any.
    """
    found = marked(directory)
    deadline = time.monotonic() + END_TIMEOUT_S
    left = found
    while left and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
        _reap(left)
        left = marked(directory)
    return bool(found)


def _reap(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):  # not ours: another parent reaps it
            os.waitpid(pid, os.WNOHANG)


def marked(directory: Path) -> list[int]:
    """The processes of the replica's server, also those that lost their parent."""
    mark = f"{MARK}={directory}".encode()
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            # A zombie's is empty; another user's may not be read.
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _stat(pid: int) -> tuple[str, int]:
    """Give (state letter, parent's pid); ("", 0) for a process that is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return "", 0
    state, parent = text.rpartition(")")[2].split()[:2]  # the name before may hold anything
    return state, int(parent)
