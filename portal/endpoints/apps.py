from __future__ import annotations

from django.apps import AppConfig


class EndpointsConfig(AppConfig):
    name = "portal.endpoints"
    label = "endpoints"
