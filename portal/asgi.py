"""The one ASGI entry: the gateway's paths first, file bodies next, Django for the rest.

The gateway and the file transfers stream; neither waits for Django's middleware or its threads.
"""

from __future__ import annotations

import os
from typing import Any, cast

from django.core.asgi import get_asgi_application

from serving.gateway.asgi import ASGIApp, Message, Receive, Scope, Send

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
_django = cast(ASGIApp, cast(Any, get_asgi_application()))

from django.conf import settings  # noqa: E402 - after the apps, which Django has now loaded

from portal.bodies import BoundedBodies  # noqa: E402 - likewise
from portal.gateway import gateway_application  # noqa: E402 - likewise
from portal.proxies import TrustedProxies  # noqa: E402 - likewise
from portal.registry.transfer import transfer_application  # noqa: E402 - likewise
from serving.gateway.http import DATA_HEADERS  # noqa: E402 - likewise

API_PREFIX = "/api/"
GATEWAY_PREFIX = "/serving-endpoints/"
TRANSFER_PREFIXES = ("/api/2.0/fs/files/", "/api/2.0/fs/transfer/")
proxies = TrustedProxies(settings.TRUSTED_PROXIES)


def _largest_body(path: str) -> int:
    is_api = path.startswith(API_PREFIX)
    return settings.MAX_API_BODY_BYTES if is_api else settings.DATA_UPLOAD_MAX_MEMORY_SIZE


django_application = BoundedBodies(_django, _largest_body)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Hand the connection to the application that its path belongs to."""
    if scope["type"] == "lifespan":
        await gateway_application(scope, receive, send)
    elif scope["type"] == "websocket":
        await django_application(scope, receive, send)  # which refuses it
    elif scope["path"].startswith(GATEWAY_PREFIX):
        await gateway_application(scope, receive, send)
    elif scope["path"].startswith(TRANSFER_PREFIXES):
        await transfer_application(proxies.settle(scope), receive, _with_data_headers(send))
    else:
        await django_application(proxies.settle(scope), receive, send)


application.lane = gateway_application.lane  # type: ignore[attr-defined]  # for LaneProtocol


def _with_data_headers(send: Send) -> Send:
    """Add the headers that a start of an answer lacks."""

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message["headers"]}
            lacking = [pair for pair in DATA_HEADERS if pair[0] not in present]
            message = {**message, "headers": [*message["headers"], *lacking]}
        await send(message)

    return with_headers
