"""Free ports for a server."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass

from serving.errors import LaunchError

FIRST, LAST = 18000, 32000
"""Below the range that Linux takes outgoing connections' ports from, so that nobody takes a
replica's port while its server restarts."""

ATTEMPTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """A server's ports; the standard backend uses `http` only."""

    http: int
    grpc: int
    metrics: int


def free_ports(host: str) -> Ports:
    """Choose three ports that nobody listens on now.

    Raises:
        LaunchError: None were found.
    """
    found: set[int] = set()
    for _ in range(ATTEMPTS):
        port = random.randint(FIRST, LAST)  # noqa: S311 - spreads, need not be secret
        if is_free(host, port):
            found.add(port)
        if len(found) == 3:
            http, grpc, metrics = sorted(found)
            return Ports(http=http, grpc=grpc, metrics=metrics)
    raise LaunchError(f"There are no free ports on {host} between {FIRST} and {LAST}.")


def are_free(host: str, ports: Ports) -> bool:
    """Whether a server could listen on all of them now."""
    return all(is_free(host, port) for port in (ports.http, ports.grpc, ports.metrics))


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()
        except OSError:
            return False
    return True
