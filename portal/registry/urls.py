from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("portal.registry.api.urls")),
    path("", include("portal.registry.page_urls")),
]
