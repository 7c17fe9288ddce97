from __future__ import annotations

from django.apps import AppConfig


class SchemaConfig(AppConfig):
    name = "portal.schema"
    default_auto_field = "django.db.models.BigAutoField"
