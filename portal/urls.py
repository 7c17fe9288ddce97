"""All routes. Each app brings its pages (`pages`) and its API (`api`) in its own `urls.py`."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("portal.ui.urls")),
    path("", include("portal.accounts.urls")),
    path("", include("portal.previews.urls")),
    path("", include("portal.registry.urls")),
    path("", include("portal.endpoints.urls")),
    path("", include("portal.logs.urls")),
]
