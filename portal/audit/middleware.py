"""Bind each request to what is recorded while it is answered, and record refused changes."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from portal.audit.context import bound_request
from portal.audit.services import record_denied

SAFE = {"GET", "HEAD", "OPTIONS", "TRACE"}


class AuditMiddleware:
    """The one place that sees every answer: a change that was refused with 403 leaves a row too."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer the request as its user's."""
        with bound_request(request):
            response = self.get_response(request)
            if response.status_code == 403 and _would_change(request):
                record_denied(request.path, request.method or "")
            return response


def _would_change(request: HttpRequest) -> bool:
    """Whether a known user asked for more than to read; strangers could fill the log."""
    user = getattr(request, "user", None)
    return request.method not in SAFE and bool(user and user.is_authenticated)
