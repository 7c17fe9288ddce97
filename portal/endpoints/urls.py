from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("portal.endpoints.page_urls")),
    path("", include("portal.endpoints.api.urls")),
]
