"""Routes of the pages."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from portal.registry import pages, sharing_pages

urlpatterns: list[URLPattern | URLResolver] = [
    path("models/", pages.models, name="models"),
    path("models/<str:name>/", pages.model, name="model"),
    path("models/<str:name>/readers/", sharing_pages.change_readers, name="model-readers"),
    path("models/<str:name>/versions/<int:number>/", pages.version, name="model-version"),
    path("models/<str:name>/versions/<int:number>/stage/", pages.stage, name="model-version-stage"),
    path(
        "models/<str:name>/versions/<int:number>/status/",
        pages.express_status,
        name="model-version-status",
    ),
]
