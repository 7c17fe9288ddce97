"""Who may do what with an endpoint, changed on its Settings tab."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from portal.endpoints import services
from portal.endpoints.pages.common import Opened, open_endpoint, page, user_of
from portal.endpoints.pages.detail import show_settings
from portal.endpoints.services import Grant
from portal.endpoints.states import PermissionLevel
from portal.rest import ApiError, InvalidParameterValue, PermissionDenied
from portal.ui.sharing import Share
from serving.permissions import Action


@page
@require_POST
def change_permissions(request: HttpRequest, name: str) -> HttpResponse:
    """Grant a user or a group a level, change it, or take it away."""
    opened = open_endpoint(request, name, action=Action.CHANGE_PERMISSIONS)
    share = Share.read(request.POST)
    try:
        done = _change(request, opened, share)
    except PermissionDenied:
        raise
    except ApiError as exc:
        return show_settings(request, opened, share=share.refused(exc), status=400)
    messages.success(request, done)
    if services.level_of(user_of(request), opened.endpoint) is None:  # took it from themselves
        return redirect("endpoints")
    return redirect(f"{reverse('endpoint-settings', args=[name])}#permissions")


def _change(request: HttpRequest, opened: Opened, share: Share) -> str:
    user, endpoint = user_of(request), opened.endpoint
    if share.is_removal:
        services.remove_permission(
            user, endpoint, user_name=share.user_name, group_name=share.group_name
        )
        return f"{share.who} has no permission of their own on {endpoint.name} any more."
    if share.level not in PermissionLevel.values:
        raise InvalidParameterValue("Pick what they may do.")
    level = PermissionLevel(share.level)
    grant = Grant(level=level, user_name=share.user_name, group_name=share.group_name)
    services.set_permissions(user, endpoint, [grant], replace=False)
    return f"{share.who} {level.label.lower()} {endpoint.name}."
