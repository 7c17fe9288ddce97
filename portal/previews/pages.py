"""The page of previews: admins turn them on and off, others see them."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.access import admin_required, current_user
from portal.previews import services
from portal.rest import ResourceDoesNotExist
from portal.ui.pages import not_found


@require_safe
@login_required
def previews(request: HttpRequest) -> HttpResponse:
    return render(request, "previews/previews.html", {"previews": services.all_previews()})


@require_POST
@admin_required
def set_enabled(request: HttpRequest, name: str) -> HttpResponse:
    enabled = request.POST.get("enabled") == "true"
    try:
        preview = services.set_enabled(name, enabled, current_user(request))
    except ResourceDoesNotExist as exc:
        return not_found(request, exc.message)
    messages.success(request, f"{preview.info.title} is {'on' if enabled else 'off'}.")
    return redirect("previews")
