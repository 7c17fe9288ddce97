"""The one ASGI entry: the gateway's paths first, file bodies next, Django for the rest.

The gateway and the file transfers stream; neither waits for Django's middleware or its threads.
"""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from portal.gateway import gateway_application
from portal.registry.transfer import transfer_application
from serving.gateway.asgi import Receive, Scope, Send

GATEWAY_PREFIX = "/serving-endpoints/"
TRANSFER_PREFIXES = ("/api/2.0/fs/files/", "/api/2.0/fs/transfer/")


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Hand the connection to the application that its path belongs to."""
    if scope["type"] == "lifespan":
        await gateway_application(scope, receive, send)
    elif scope["type"] == "http" and scope["path"].startswith(GATEWAY_PREFIX):
        await gateway_application(scope, receive, send)
    elif scope["type"] == "http" and scope["path"].startswith(TRANSFER_PREFIXES):
        await transfer_application(scope, receive, send)
    else:
        await django_application(scope, receive, send)
