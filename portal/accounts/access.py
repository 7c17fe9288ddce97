"""Who may open a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from portal.accounts.models import User

P = ParamSpec("P")


def current_user(request: HttpRequest) -> User:
    """The logged-in user of a page behind `login_required`."""
    return cast(User, request.user)


def admin_required(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Only workspace admins get to the page; others a 403 that says so, strangers the login."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not current_user(request).is_workspace_admin:
            raise PermissionDenied("Only workspace admins may do this.")
        return view(request, *args, **kwargs)

    return cast("Callable[Concatenate[HttpRequest, P], HttpResponse]", login_required(guarded))
