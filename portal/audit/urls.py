from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from portal.audit import pages
from portal.audit.api import views as api

urlpatterns: list[URLPattern | URLResolver] = [
    path("settings/audit/", pages.audit, name="audit"),
    path("settings/audit/download/", pages.download, name="audit-download"),
    path("api/2.0/audit-logs", api.AuditLogs.as_view()),
]
