"""All routes. Each app brings its pages (`pages`) and its API (`api`) in its own `urls.py`."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, re_path

from portal.ui import errors

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("portal.ui.urls")),
    path("", include("portal.accounts.urls")),
    path("", include("portal.previews.urls")),
    path("", include("portal.secrets.urls")),
    path("", include("portal.audit.urls")),
    path("", include("portal.registry.urls")),
    path("", include("portal.endpoints.urls")),
    path("", include("portal.logs.urls")),
    path("", include("portal.schema.urls")),
    re_path(r"^api/(?P<rest_of_path>.*)$", errors.unknown_api_path),
]

handler400 = errors.bad_request
handler403 = errors.permission_denied
handler404 = errors.page_not_found
handler500 = errors.server_error
