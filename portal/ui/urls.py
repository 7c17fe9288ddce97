from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from portal.ui import pages, preferences

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", pages.healthz, name="healthz"),
    path("preferences/", preferences.preferences, name="preferences"),
    path("settings/", pages.settings_hub, name="settings"),
]
