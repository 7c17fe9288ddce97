"""Errors outside of any view: in the frame for pages, in the one JSON shape under /api/."""

from __future__ import annotations

import logging

from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from portal import rest
from portal.ui.pages import error_page, not_found

log = logging.getLogger(__name__)

API_PREFIXES = ("/api/", "/.well-known/", "/serving-endpoints/")


@csrf_exempt
def unknown_api_path(request: HttpRequest, rest_of_path: str = "") -> HttpResponse:
    """404 for what the API does not have, with or without a token."""
    return rest.error_response(rest.EndpointNotFound("There is no such API path."), request)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400."""
    reason = str(exception) if isinstance(exception, BadRequest) else ""
    if _is_api(request):
        words = reason or "The request cannot be understood."
        return rest.error_response(rest.MalformedRequest(words), request)
    words = reason or "The request could not be understood."
    text = f"{words} Go back, reload the page and try again."
    return error_page(request, status=400, title="Bad request", text=text)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403, with the reason that the view gave."""
    reason = str(exception) or "You may not do this."
    if _is_api(request):
        return rest.error_response(rest.PermissionDenied(reason), request)
    return error_page(
        request,
        status=403,
        title="Not allowed",
        text=reason,
        next_step="Ask a workspace admin for the permission.",
    )


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404; a page that chose its own words (`Http404("...")`) keeps them."""
    if _is_api(request):
        return unknown_api_path(request)
    words = exception.args[0] if isinstance(exception, Http404) and exception.args else ""
    is_own = isinstance(words, str) and words and "matches the given query" not in words
    text = (
        words
        if is_own
        else "There is nothing at this address, or you may not see it. It may have been deleted."
    )
    return not_found(request, str(text))


def server_error(request: HttpRequest) -> HttpResponse:
    """500; Django has logged the traceback."""
    request_id = rest.request_id(request)
    log.error("request %s failed: %s %s", request_id, request.method, request.path)
    if _is_api(request):
        text = f"Sorry, something went wrong here. Please report request id {request_id}."
        return rest.error_response(rest.ApiError(text), request)
    return error_page(
        request,
        status=500,
        title="Something went wrong here",
        text="Sorry. This is a fault of the portal, not of what you did.",
        next_step="Try again; if it stays, report the request id to whoever runs this portal.",
    )


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403 for a form that was open for too long or came from elsewhere."""
    if _is_api(request):
        return rest.error_response(rest.PermissionDenied("Send a token, not a cookie."), request)
    return error_page(
        request,
        status=403,
        title="The form has expired",
        text="The form was open for too long, or you logged in or out in another tab meanwhile.",
        next_step="Go back, reload the page and send it again.",
    )


def _is_api(request: HttpRequest) -> bool:
    return f"{request.path}/".startswith(API_PREFIXES)
