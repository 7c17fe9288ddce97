"""The reference of the API, drawn from its OpenAPI document."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.schema.reading import reference_for
from portal.workspace import public_url


@require_safe
@login_required
def reference(request: HttpRequest) -> HttpResponse:
    """Show every call with what it takes and answers."""
    context = {"reference": reference_for(public_url(request))}
    return render(request, "schema/reference.html", context)
