from __future__ import annotations

from django.apps import AppConfig


class LauncherConfig(AppConfig):
    name = "portal.launcher"
    label = "launcher"
