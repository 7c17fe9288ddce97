from __future__ import annotations

from django.apps import AppConfig


class SecretsConfig(AppConfig):
    name = "portal.secrets"
    label = "secrets"
