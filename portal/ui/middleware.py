"""Headers that every answer carries."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from portal import rest

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

WORKSPACE_ID = "1"
"""What clients call the workspace; there is one."""


class PageMiddleware:
    """Give pages their content security policy, API answers their workspace, all their request id."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Add the headers."""
        request_id = rest.request_id(request)
        response = self.get_response(request)
        response.headers.setdefault("X-Request-Id", request_id)
        if request.path.startswith("/api/"):
            response.headers.setdefault("x-databricks-org-id", WORKSPACE_ID)
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        return response
