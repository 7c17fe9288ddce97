"""What a reverse proxy says of a request: believed from trusted ones, taken away from all others.

Past this point `scope["client"]`, `scope["scheme"]` and the `Host` header are the truth, and no
`X-Forwarded-*` header is left: nobody further in has to ask who wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address

from serving.gateway.asgi import Scope

Network = IPv4Network | IPv6Network
SCHEMES = {b"http": "http", b"https": "https"}
FORWARDED = b"x-forwarded-"


class TrustedProxies:
    """Reads the forwarded headers of the proxies in `networks`."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = tuple(networks)
        self._is_trusted = lru_cache(1024)(self._look_up)

    def settle(self, scope: Scope) -> Scope:
        """The scope as the caller meant it."""
        said: dict[bytes, bytes] = {}
        kept: list[tuple[bytes, bytes]] = []
        for name, value in scope["headers"]:
            if not name.startswith(FORWARDED):
                kept.append((name, value))
            elif name in said:
                said[name] += b"," + value
            else:
                said[name] = value
        if not said:
            return scope
        settled = {**scope, "headers": kept}
        client = scope.get("client")
        if client is None or not self._is_trusted(client[0]):
            return settled
        caller = self._caller(said.get(b"x-forwarded-for", b""))
        if caller:
            settled["client"] = (caller, 0)
        scheme = SCHEMES.get(_last(said.get(b"x-forwarded-proto", b"")).lower())
        if scheme:
            settled["scheme"] = scheme
        host = _last(said.get(b"x-forwarded-host", b""))
        if host:
            settled["headers"] = [pair for pair in kept if pair[0] != b"host"] + [(b"host", host)]
        return settled

    def _caller(self, addresses: bytes) -> str:
        """The last address that is no trusted proxy's: what stands before it, anybody can claim."""
        named = [part.strip().decode("latin-1") for part in addresses.split(b",") if part.strip()]
        caller = next((part for part in reversed(named) if not self._is_trusted(part)), "")
        return caller if _is_address(caller) else ""

    def _look_up(self, text: str) -> bool:
        try:
            address = ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def _last(values: bytes) -> bytes:
    """The value that the nearest proxy gave."""
    return values.rpartition(b",")[2].strip()


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
