"""Pages that belong to no app, and those that several apps show: to confirm, not found."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal import rest


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Say that this process answers; it looks at nothing else."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
@login_required
def settings_hub(request: HttpRequest) -> HttpResponse:
    """Show what can be set, for the user and for the workspace."""
    return render(request, "ui/settings.html")


def confirm_page(
    request: HttpRequest,
    *,
    title: str,
    text: Sequence[str],
    button: str,
    cancel_url: str,
) -> HttpResponse:
    """Ask before something that hurts; the form posts to this same URL.

    A link to it with `data-confirm` opens the question as a dialog where there is script.
    """
    context = {"title": title, "text": text, "button": button, "cancel_url": cancel_url}
    return render(request, "ui/confirm.html", context)


def error_page(
    request: HttpRequest, *, status: int, title: str, text: str, next_step: str = ""
) -> HttpResponse:
    """An error in the frame: what happened, the request's id, a way on."""
    context = {
        "title": title,
        "text": text,
        "next_step": next_step,
        "request_id": rest.request_id(request),
    }
    return render(request, "ui/error.html", context, status=status)


def not_found(request: HttpRequest, text: str) -> HttpResponse:
    """A 404 in the frame."""
    return error_page(request, status=404, title="Not found", text=text)
