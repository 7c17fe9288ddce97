"""Headers that every answer carries."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url

from portal import rest
from portal.workspace import ORG_ID_HEADER, workspace_id

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)


class PageMiddleware:
    """Give answers their content security policy, request id and, on the API, workspace id."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Add the headers."""
        request_id = rest.request_id(request)
        response = self.get_response(request)
        if _is_login_of_a_fragment(request, response):
            response = HttpResponse(headers={"HX-Refresh": "true"})
        response.headers.setdefault("X-Request-Id", request_id)
        if request.path.startswith("/api/"):
            response.headers.setdefault(ORG_ID_HEADER, workspace_id())
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        # Every page shows what its reader alone may see; static files bring their own.
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return response


def _is_login_of_a_fragment(request: HttpRequest, response: HttpResponse) -> bool:
    """Whether a live region of a page would receive the login page; then the page itself must."""
    if "HX-Request" not in request.headers or response.status_code != 302:
        return False
    return response["Location"].startswith(resolve_url(settings.LOGIN_URL))
