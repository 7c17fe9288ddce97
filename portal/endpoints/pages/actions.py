"""What a button on an endpoint's page does; all by POST, and then back to a page."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.models import User
from portal.endpoints import services
from portal.endpoints.models import Endpoint
from portal.endpoints.pages.common import open_endpoint, page, user_of
from portal.endpoints.states import Ready
from portal.rest import ApiError, PermissionDenied
from serving.permissions import Action


@page
@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, name: str) -> HttpResponse:
    """Ask, and with POST delete; an endpoint that answers requests asks for its name."""
    opened = open_endpoint(request, name, action=Action.DELETE)
    endpoint = opened.endpoint
    must_confirm = endpoint.ready == Ready.READY
    if request.method == "POST":
        if not must_confirm or request.POST.get("confirm", "").strip() == endpoint.name:
            services.delete_endpoint(user_of(request), endpoint)
            messages.success(request, f"{name} is deleted.")
            return redirect("endpoints")
        error = f"Type {endpoint.name} to confirm."
    else:
        error = ""
    context = {"opened": opened, "endpoint": endpoint, "must_confirm": must_confirm, "error": error}
    return render(request, "endpoints/delete.html", context, status=400 if error else 200)


def _act(
    request: HttpRequest,
    name: str,
    action: Action,
    act: Callable[[User, Endpoint], object],
    done: str,
) -> HttpResponse:
    """Do it, say that it is done or why not, and go back."""
    opened = open_endpoint(request, name, action=action)
    try:
        act(user_of(request), opened.endpoint)
    except PermissionDenied:
        raise
    except ApiError as exc:
        messages.error(request, exc.message)
    else:
        messages.success(request, done)
    return redirect("endpoint", name)


@page
@require_http_methods(["GET", "POST"])
def stop(request: HttpRequest, name: str) -> HttpResponse:
    """Ask, and with POST stop."""
    if request.method == "POST":
        done = f"{name} is being stopped."
        return _act(request, name, Action.STOP, services.stop_endpoint, done)
    opened = open_endpoint(request, name, action=Action.STOP)
    return render(request, "endpoints/stop.html", {"opened": opened, "endpoint": opened.endpoint})


@page
@require_POST
def start(request: HttpRequest, name: str) -> HttpResponse:
    """Start a stopped endpoint."""
    return _act(request, name, Action.START, services.start_endpoint, f"{name} is being started.")


@page
@require_POST
def retry(request: HttpRequest, name: str) -> HttpResponse:
    """Try a failed deployment again."""
    return _act(
        request, name, Action.RETRY, services.retry_deployment, "The deployment starts again."
    )


@page
@require_POST
def cancel(request: HttpRequest, name: str) -> HttpResponse:
    """Cancel the update that is under way."""
    return _act(
        request, name, Action.CANCEL, services.cancel_update, "The update is being canceled."
    )
