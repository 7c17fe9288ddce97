"""Pages of registered models and their versions."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.access import current_user
from portal.accounts.groups import known_names
from portal.accounts.models import User
from portal.registry import reading, services, snippets
from portal.registry.models import ModelVersion, RegisteredModel
from portal.registry.signatures import signature_rows
from portal.registry.states import ExpressState, VersionStatus
from portal.rest import InvalidState
from portal.ui.sharing import Share
from portal.workspace import public_url

MODELS_A_PAGE = 25
VERSIONS_A_PAGE = 50
BUILD_LOG_LINES = 200


@require_safe
@login_required
def models(request: HttpRequest) -> HttpResponse:
    """The registered models, searchable by name."""
    text = request.GET.get("search", "").strip()[:255].replace("\x00", "")
    paginator = Paginator(reading.models_matching(current_user(request), text), MODELS_A_PAGE)
    page = paginator.get_page(request.GET.get("page"))
    rows = [
        {
            "model": model,
            "chip": reading.version_chip(model.newest_status, model.newest_express_state)  # type: ignore[attr-defined]  # annotated
            if model.newest_version  # type: ignore[attr-defined]  # annotated
            else None,
        }
        for model in page
    ]
    context: dict[str, Any] = {"page": page, "rows": rows, "search": text}
    if not rows and not text:
        context |= {
            "environment": snippets.client_environment(public_url(request)),
            "snippet": snippets.register_first_model(),
        }
    return render(request, "registry/models.html", context)


@require_safe
@login_required
def model(request: HttpRequest, name: str) -> HttpResponse:
    """One model: its versions and aliases."""
    return show_model(request, find_shown_model(request, name))


def show_model(
    request: HttpRequest,
    found: RegisteredModel,
    *,
    share: Share | None = None,
    status: int = 200,
) -> HttpResponse:
    """A model's page; `share` is a change of its readers that was refused."""
    versions = found.versions.select_related("creator").prefetch_related("aliases")
    page = Paginator(versions, VERSIONS_A_PAGE).get_page(request.GET.get("page"))
    rows = [
        {"version": version, "chip": reading.version_chip(version.status, version.express_state)}
        for version in page
    ]
    context = {
        "model": found,
        "page": page,
        "rows": rows,
        "environment": snippets.client_environment(public_url(request)),
        "snippet": snippets.register_with_environment(found.name),
        **_readers_context(current_user(request), found, share),
    }
    return render(request, "registry/model.html", context, status=status)


def _readers_context(user: User, found: RegisteredModel, share: Share | None) -> dict[str, Any]:
    readers = services.readers_of(found)
    may_share = services.may_write_model(user, found)
    return {
        "readers": readers,
        "listed": [
            *(Share(kind="user", who=name) for name in readers.user_names),
            *(Share(kind="group", who=name) for name in readers.group_names),
        ],
        "may_share": may_share,
        "share": share or Share(),
        "known": known_names() if may_share and readers.is_restricted else None,
    }


@require_safe
@login_required
def version(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """One version: what it takes and gives, what it needs, whether it is express."""
    found = _version(request, name, number)
    chosen = urlencode({"model": name, "version": str(number)})
    context = _express_context(request, found) | {
        "signature": signature_rows(found.signature),
        "endpoints": reading.endpoints_using(found, current_user(request)),
        "serve_url": f"{reverse('endpoint-create')}?{chosen}",
        "can_serve": found.status == VersionStatus.READY,
    }
    return render(request, "registry/version.html", context)


@require_safe
@login_required
def express_status(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """The live part of a version's page; it asks again until nothing moves any more."""
    context = _express_context(request, _version(request, name, number))
    return render(request, "registry/_express.html", context)


@require_POST
@login_required
def stage(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Start staging (again) for whoever may write the version."""
    found = _version(request, name, number)
    if not services.may_write_version(current_user(request), found):
        raise PermissionDenied("Only the model's owner and workspace admins may stage a version.")
    try:
        services.request_staging(found, current_user(request))
    except InvalidState as exc:
        messages.error(request, exc.message)
    return redirect("model-version", name, number)


def find_shown_model(request: HttpRequest, name: str) -> RegisteredModel:
    """The model with what its page shows; 404 where it is not there for the user."""
    return get_object_or_404(
        RegisteredModel.objects.readable_by(current_user(request))
        .select_related("owner")
        .prefetch_related("tags", "aliases__model_version"),
        name=name,
    )


def _version(request: HttpRequest, name: str, number: int) -> ModelVersion:
    found = (
        ModelVersion.objects.readable_by(current_user(request))
        .select_related("model__owner", "creator", "environment")
        .prefetch_related("tags", "aliases")
        .filter(model__name=name, version=number)
        .first()
    )
    if found is None:
        raise Http404(f"There is no version {number} of {name[:255]}.")
    return found


def _build_log(version: ModelVersion) -> str:
    """The last lines of what building the environment said; nothing for what is express."""
    if version.is_packed and version.express_state != ExpressState.FAILED:
        return ""
    return "\n".join(services.build_log(version).splitlines()[-BUILD_LOG_LINES:])


def _express_context(request: HttpRequest, version: ModelVersion) -> dict[str, Any]:
    return {
        "version": version,
        "express": reading.express_view(version),
        "is_building": reading.is_building(version),
        "build_log": _build_log(version),
        "may_stage": services.may_write_version(current_user(request), version),
        "environment": snippets.client_environment(public_url(request)),
        "snippet": snippets.register_with_environment(version.model.name),
    }
