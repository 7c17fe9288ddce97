"""Short questions to a server on this machine."""

from __future__ import annotations

import http.client
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A server's answer."""

    status: int
    body: str


def ask(
    host: str,
    port: int,
    path: str,
    *,
    timeout_s: float,
    post: bool = False,
    json_body: str | None = None,
) -> Answer | None:
    """Ask once, on a connection of its own; None when nobody answers in time."""
    headers = {"Connection": "close"}
    if json_body is not None:
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("POST" if post else "GET", path, json_body, headers)
        response = connection.getresponse()
        body = response.read(2**20).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return Answer(status=response.status, body=body)
