"""Routes of the pages."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.endpoints.pages import actions, batching, detail, form, limits, listing, query, sharing

urlpatterns: list[URLPattern] = [
    path("", listing.endpoints, name="endpoints"),
    path("endpoints/", listing.endpoint_rows, name="endpoint-rows"),
    path("endpoints/new/", form.create, name="endpoint-create"),
    path("endpoints/new/fields/", form.create_fields, name="endpoint-create-fields"),
    path("endpoints/new/entity/<int:index>/", form.create_entity, name="endpoint-create-entity"),
    path("endpoints/new/summary/", form.create_summary, name="endpoint-create-summary"),
    path("endpoints/new/name/", form.check_name, name="endpoint-create-name"),
    path("endpoints/<str:name>/", detail.overview, name="endpoint"),
    path("endpoints/<str:name>/status/", detail.status, name="endpoint-status"),
    path("endpoints/<str:name>/batching/", batching.batching, name="endpoint-batching"),
    path(
        "endpoints/<str:name>/batching/status/",
        batching.batching_status,
        name="endpoint-batching-status",
    ),
    path("endpoints/<str:name>/batching/measure/", batching.measure_again, name="endpoint-measure"),
    path("endpoints/<str:name>/events/", detail.events, name="endpoint-events"),
    path("endpoints/<str:name>/settings/", detail.settings_tab, name="endpoint-settings"),
    path(
        "endpoints/<str:name>/permissions/",
        sharing.change_permissions,
        name="endpoint-permissions",
    ),
    path("endpoints/<str:name>/limits/", limits.change_limits, name="endpoint-limits"),
    path("endpoints/<str:name>/query/", query.query, name="endpoint-query"),
    path("endpoints/<str:name>/edit/", form.edit, name="endpoint-edit"),
    path("endpoints/<str:name>/edit/fields/", form.edit_fields, name="endpoint-edit-fields"),
    path(
        "endpoints/<str:name>/edit/entity/<int:index>/",
        form.edit_entity,
        name="endpoint-edit-entity",
    ),
    path("endpoints/<str:name>/edit/summary/", form.edit_summary, name="endpoint-edit-summary"),
    path("endpoints/<str:name>/delete/", actions.delete, name="endpoint-delete"),
    path("endpoints/<str:name>/stop/", actions.stop, name="endpoint-stop"),
    path("endpoints/<str:name>/start/", actions.start, name="endpoint-start"),
    path("endpoints/<str:name>/retry/", actions.retry, name="endpoint-retry"),
    path("endpoints/<str:name>/cancel/", actions.cancel, name="endpoint-cancel"),
]
