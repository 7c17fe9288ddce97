"""Refuse what no view should have to think of: bodies that are too large, NUL characters."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse

from portal.bodies import TOO_LARGE

FORM_TYPES = {"application/x-www-form-urlencoded", "multipart/form-data"}


class RequestGuard:
    """Middleware; the error pages and the API's error shape are `portal.ui.errors`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Let the request pass.

        Raises:
            BadRequest: It is one that nothing here can want.
        """
        limit = getattr(request, "scope", {}).get(TOO_LARGE)
        if limit is not None:
            raise BadRequest(f"The request body is larger than {limit // 2**20} MB.")
        if "\0" in request.path or b"\0" in unquote_to_bytes(request.META["QUERY_STRING"]):
            raise BadRequest("The address holds a NUL character.")
        if request.method == "POST" and not request.path.startswith("/api/"):
            _check_form(request)
        return self.get_response(request)


def _check_form(request: HttpRequest) -> None:
    if request.content_type not in FORM_TYPES:
        return
    for key, values in request.POST.lists():
        if "\0" in key or any("\0" in value for value in values):
            raise BadRequest("The form holds a NUL character.")
