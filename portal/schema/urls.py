from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from portal.schema import pages
from portal.schema.api.views import SchemaView

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/schema", SchemaView.as_view(), name="schema"),
    path("settings/api/", pages.reference, name="api-reference"),
]
