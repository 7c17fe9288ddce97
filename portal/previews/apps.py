from __future__ import annotations

from django.apps import AppConfig


class PreviewsConfig(AppConfig):
    name = "portal.previews"
    label = "previews"
