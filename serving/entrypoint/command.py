"""The command of a custom entrypoint, told where to listen.

By the contract it listens on 0.0.0.0:8080, which suits a container of its own. Here several
replicas share a machine and only the gateway faces callers, so the command is given this machine's
own address and a port of its own: in its words where they name port 8080, and in variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

CONTRACT_PORT = 8080

_PORT = re.compile(r"((?:--?[\w-]*port\b|-p\b|\bport\b)[=\s]+[\"']?|:)8080(?!\d)", re.IGNORECASE)
_EVERYWHERE = re.compile(r"(?<![\d.])0\.0\.0\.0(?![\d.])")


def localize(command: str, *, host: str, port: int) -> str:
    """The command with `host` for 0.0.0.0, and `port` where it names port 8080 as such."""
    return _EVERYWHERE.sub(host, _PORT.sub(rf"\g<1>{port}", command))


def variables(*, host: str, port: int) -> Mapping[str, str]:
    """What a command that asks its environment finds."""
    return {"HOST": host, "PORT": str(port), "SHOAL_HOST": host, "SHOAL_PORT": str(port)}
