from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from portal.previews import pages
from portal.previews.api import views as api

urlpatterns: list[URLPattern | URLResolver] = [
    path("settings/previews/", pages.previews, name="previews"),
    path("settings/previews/<str:name>/", pages.set_enabled, name="preview-set"),
    path("api/2.0/previews", api.Previews.as_view()),
    path("api/2.0/previews/<str:name>", api.OnePreview.as_view()),
]
