from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from portal.logs import pages

urlpatterns: list[URLPattern | URLResolver] = [
    path("endpoints/<str:name>/logs/", pages.logs, name="endpoint-logs"),
    path("endpoints/<str:name>/logs/status/", pages.log_status, name="endpoint-logs-status"),
    path("endpoints/<str:name>/logs/lines/", pages.log_lines, name="endpoint-logs-lines"),
    path("endpoints/<str:name>/logs/stream/", pages.log_stream, name="endpoint-logs-stream"),
    path("endpoints/<str:name>/logs/download/", pages.log_download, name="endpoint-logs-download"),
]
