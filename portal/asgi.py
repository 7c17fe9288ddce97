"""The one ASGI entry: the gateway's paths first, file bodies next, Django for the rest.

The gateway and the file transfers stream; neither waits for Django's middleware or its threads.
"""

from __future__ import annotations

import os
from typing import Any, cast

from django.core.asgi import get_asgi_application

from serving.gateway.asgi import ASGIApp, Receive, Scope, Send

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django_application = cast(ASGIApp, cast(Any, get_asgi_application()))

from portal.gateway import gateway_application  # noqa: E402 - needs the apps, which Django has now loaded
from portal.registry.transfer import transfer_application  # noqa: E402 - likewise

GATEWAY_PREFIX = "/serving-endpoints/"
TRANSFER_PREFIXES = ("/api/2.0/fs/files/", "/api/2.0/fs/transfer/")


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Hand the connection to the application that its path belongs to."""
    if scope["type"] == "lifespan" or scope["path"].startswith(GATEWAY_PREFIX):
        await gateway_application(scope, receive, send)
    elif scope["path"].startswith(TRANSFER_PREFIXES):
        await transfer_application(scope, receive, send)
    else:
        await django_application(scope, receive, send)
