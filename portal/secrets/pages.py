"""Pages of secret scopes: for everybody who may see a scope; values are never shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.access import current_user
from portal.rest import ApiError, PermissionDenied, ResourceDoesNotExist
from portal.secrets import services
from portal.secrets.forms import AclForm, ScopeForm, SecretForm
from portal.secrets.states import PERMISSION_MEANING, PERMISSION_RANK, ScopePermission
from portal.ui.pages import confirm_page

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]

FIELDS = {"scope": "scope", "key": "key", "value": "value", "principal": "principal"}
"""The services' words to the forms'."""


def page(view: View[P]) -> View[P]:
    """A view for people who are logged in; refusals become the 404 and 403 pages."""

    @wraps(view)
    def wrapped(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except ResourceDoesNotExist as exc:
            raise Http404(exc.message) from exc
        except PermissionDenied as exc:
            raise DjangoPermissionDenied(exc.message) from exc

    return login_required(never_cache(wrapped))


def _attempt(form: forms.Form, act: Callable[[], object]) -> bool:
    """Do it, or put the refusal at the form's fields; access refusals pass through."""
    try:
        act()
    except (PermissionDenied, ResourceDoesNotExist):
        raise
    except ApiError as exc:
        for detail in exc.details or [{"field": "", "message": exc.message}]:
            form.add_error(FIELDS.get(str(detail["field"])), str(detail["message"]))
        return False
    return True


@require_http_methods(["GET", "HEAD", "POST"])
@page
def scopes(request: HttpRequest) -> HttpResponse:
    """The scopes that the user may read; POST creates one."""
    user = current_user(request)
    form = ScopeForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        name = form.cleaned_data["scope"]
        if _attempt(form, lambda: services.create_scope(user, name)):
            messages.success(request, f"Scope {name} is created.")
            return redirect("secret-scope", name)
    context = {"scopes": services.list_scopes(user), "form": form}
    return render(request, "secrets/scopes.html", context, status=400 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def scope(request: HttpRequest, scope: str) -> HttpResponse:
    """A scope's keys and permissions; POST puts a secret."""
    user = current_user(request)
    form = SecretForm(request.POST or None, initial={"key": request.GET.get("key", "")[:128]})
    if request.method == "POST" and form.is_valid():
        key = form.cleaned_data["key"]
        if _attempt(form, lambda: services.put_secret(user, scope, key, form.value_bytes)):
            messages.success(request, f"{key} has its new value. It is not shown again.")
            return redirect("secret-scope", scope)
    return _scope_page(request, scope, form, AclForm(initial={"permission": "READ"}))


def _scope_page(
    request: HttpRequest, name: str, form: SecretForm, acl_form: AclForm
) -> HttpResponse:
    user = current_user(request)
    found = services.find_scope(user, name, ScopePermission.READ)
    has = services.permission_of(user, found) or ScopePermission.READ
    manages = has == ScopePermission.MANAGE
    context = {
        "scope": found,
        "permission": has,
        "meaning": PERMISSION_MEANING,
        "can_write": PERMISSION_RANK[has] >= PERMISSION_RANK[ScopePermission.WRITE],
        "can_manage": manages,
        "secrets": [
            {"secret": secret, "reference": f"{{{{secrets/{name}/{secret.key}}}}}"}
            for secret in services.list_secrets(user, name)
        ],
        "acls": services.list_acls(user, name) if manages else [],
        "form": form,
        "acl_form": acl_form,
    }
    status = 400 if form.errors or acl_form.errors else 200
    return render(request, "secrets/scope.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def delete_scope(request: HttpRequest, scope: str) -> HttpResponse:
    """Ask, then delete a scope with its keys."""
    user = current_user(request)
    if request.method == "POST":
        services.delete_scope(user, scope)
        messages.success(request, f"Scope {scope} is deleted.")
        return redirect("secrets")
    found = services.find_scope(user, scope, ScopePermission.MANAGE)
    return confirm_page(
        request,
        title=f"Delete scope {found.name}?",
        text=[
            f"Its {found.secrets.count()} keys and its permissions are deleted. This cannot be "
            "undone.",
            "Endpoints that use them go on running, but their next deployment fails.",
        ],
        button="Delete scope",
        cancel_url=reverse("secret-scope", args=[scope]),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@page
def delete_key(request: HttpRequest, scope: str, key: str) -> HttpResponse:
    """Ask, then delete a key."""
    user = current_user(request)
    if request.method == "POST":
        services.delete_secret(user, scope, key)
        messages.success(request, f"{key} is deleted.")
        return redirect("secret-scope", scope)
    services.find_scope(user, scope, ScopePermission.WRITE)
    return confirm_page(
        request,
        title=f"Delete {key} from scope {scope}?",
        text=[
            "Its value is kept nowhere else and cannot be brought back.",
            "Endpoints that use it go on running, but their next deployment fails.",
        ],
        button="Delete key",
        cancel_url=reverse("secret-scope", args=[scope]),
    )


@require_POST
@page
def put_acl(request: HttpRequest, scope: str) -> HttpResponse:
    """Give a user or group a permission."""
    user = current_user(request)
    form = AclForm(request.POST)
    if form.is_valid():
        principal = form.cleaned_data["principal"]
        permission = ScopePermission(form.cleaned_data["permission"])
        if _attempt(form, lambda: services.put_acl(user, scope, principal, permission)):
            messages.success(request, f"{principal} has {permission.label} on {scope}.")
            return redirect("secret-scope", scope)
    return _scope_page(request, scope, SecretForm(), form)


@require_POST
@page
def delete_acl(request: HttpRequest, scope: str) -> HttpResponse:
    """Take a user's or group's permission away."""
    principal = request.POST.get("principal", "")
    services.delete_acl(current_user(request), scope, principal)
    messages.success(request, f"{principal} has no permission on {scope} any more.")
    try:
        services.find_scope(current_user(request), scope, ScopePermission.READ)
    except ResourceDoesNotExist:  # it was one's own
        return redirect("secrets")
    return redirect("secret-scope", scope)
