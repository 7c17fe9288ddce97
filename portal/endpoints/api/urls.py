"""Routes of the endpoints API; each with and without a trailing slash, never a redirect."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, re_path

from portal.endpoints.api import views

BASE = r"^api/2\.0/serving-endpoints"
ONE = BASE + r"/(?P<name>[^/]+)"
ENTITY = ONE + r"/served-models/(?P<entity>[^/]+)"
ACCESS = r"^api/2\.0/permissions/serving-endpoints/(?P<public_id>[^/]+)"

urlpatterns: list[URLPattern | URLResolver] = [
    re_path(BASE + r"/?$", views.EndpointsView.as_view()),
    re_path(ONE + r"/?$", views.EndpointView.as_view()),
    re_path(ONE + r"/config/?$", views.ConfigView.as_view()),
    re_path(ONE + r"/tags/?$", views.TagsView.as_view()),
    re_path(ONE + r"/notifications/?$", views.NotificationsView.as_view()),
    re_path(ONE + r"/rate-limits/?$", views.RateLimitsView.as_view()),
    re_path(ONE + r"/ai-gateway/?$", views.AiGatewayView.as_view()),
    re_path(ONE + r"/stop/?$", views.StopView.as_view()),
    re_path(ONE + r"/start/?$", views.StartView.as_view()),
    re_path(ONE + r"/cancel-update/?$", views.CancelUpdateView.as_view()),
    re_path(ONE + r"/events/?$", views.EventsView.as_view()),
    re_path(ONE + r"/metrics/?$", views.MetricsView.as_view()),
    re_path(ONE + r"/openapi/?$", views.OpenApiView.as_view()),
    re_path(ENTITY + r"/logs/?$", views.LogsView.as_view()),
    re_path(ENTITY + r"/build-logs/?$", views.BuildLogsView.as_view()),
    re_path(ENTITY + r"/profile/?$", views.ProfileView.as_view()),
    re_path(ACCESS + r"/?$", views.PermissionsView.as_view()),
    re_path(ACCESS + r"/permissionLevels/?$", views.PermissionLevelsView.as_view()),
]
