"""The gateway of this process, set up from the settings."""

from __future__ import annotations

from django.conf import settings

from serving.gateway.app import GatewaySettings, create_gateway

gateway_application = create_gateway(
    GatewaySettings(
        redis_url=settings.REDIS_URL,
        max_request_bytes=settings.MAX_REQUEST_BYTES,
        processes=settings.WEB_WORKERS,
    )
)
