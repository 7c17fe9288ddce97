from __future__ import annotations

from django.apps import AppConfig


class LauncherConfig(AppConfig):
    name = "portal.launcher"
    label = "launcher"

    def ready(self) -> None:
        """Register the system checks."""
        from portal import checks  # noqa: F401 - registers by being imported
