"""Pages that belong to no app: the settings hub and the liveness probe."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Say that this process answers; it looks at nothing else."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
@login_required
def settings_hub(request: HttpRequest) -> HttpResponse:
    """Show what can be set, for the user and for the workspace."""
    return render(request, "ui/settings.html")
