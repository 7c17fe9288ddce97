"""Where the processes of a replica listen, as the kernel tells it."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

LISTENING = "0A"


def listening_addresses(pid: int) -> set[tuple[IPv4Address | IPv6Address, int]]:
    """Address and port of each TCP socket that a process or any descendant of it listens on."""
    ours = {inode for one in descendants(pid) for inode in _socket_inodes(one)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in ours:
                address, _, port = fields[1].partition(":")
                found.add((_address(address), int(port, 16)))
    return found


def descendants(pid: int) -> set[int]:
    """The process and all that it started, directly or not."""
    found = {pid}
    with suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                found |= descendants(int(child))
    return found


def _socket_inodes(pid: int) -> set[str]:
    inodes = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    inodes.add(target.removeprefix("socket:[").rstrip("]"))
    return inodes


def _address(text: str) -> IPv4Address | IPv6Address:
    """The kernel writes addresses in words of the machine's byte order."""
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    address = ip_address(socket.inet_ntop(family, packed))
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
