"""Who may read a model, changed on its page."""

from __future__ import annotations

from dataclasses import replace

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from portal.accounts.access import current_user
from portal.registry import services
from portal.registry.pages import find_shown_model, show_model
from portal.registry.services import Readers
from portal.rest import ApiError, InvalidParameterValue, PermissionDenied
from portal.ui.sharing import Share


@require_POST
@login_required
def change_readers(request: HttpRequest, name: str) -> HttpResponse:
    """Restrict a model or open it, add a reader or remove one."""
    user = current_user(request)
    model = find_shown_model(request, name)
    share = Share.read(request.POST)
    try:
        services.require_write(user, model)
        wanted, done = _change(
            services.readers_of(model), request.POST.get("action", ""), share, model.name
        )
        services.set_readers(user, model, wanted)
    except PermissionDenied as exc:
        raise DjangoPermissionDenied(exc.message) from exc
    except ApiError as exc:
        model.refresh_from_db()
        return show_model(request, model, share=share.refused(exc), status=400)
    messages.success(request, done)
    return redirect(f"{reverse('model', args=[name])}#readers")


def _change(readers: Readers, action: str, share: Share, name: str) -> tuple[Readers, str]:
    if action == "open":
        return replace(readers, is_restricted=False), f"Everybody may read {name}."
    if action == "restrict":
        return replace(readers, is_restricted=True), f"{name} is restricted."
    if action not in {"add", "remove"}:
        raise InvalidParameterValue("Pick what to do.")
    users = [user for user in readers.user_names if user != share.user_name]
    groups = [group for group in readers.group_names if group != share.group_name]
    if action == "add":
        users += [share.user_name] if share.user_name else []
        groups += [share.group_name] if share.group_name else []
    done = "may now" if action == "add" else "is no longer listed to"
    wanted = replace(readers, user_names=tuple(users), group_names=tuple(groups))
    return wanted, f"{share.who} {done} read {name}."
