"""The admins' pages of groups."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import Group
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts import directory, groups
from portal.accounts.access import admin_required
from portal.accounts.models import ADMINS, USERS, User
from portal.rest import ApiError
from portal.ui.pages import confirm_page


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
def group_list(request: HttpRequest) -> HttpResponse:
    """All groups; POST makes a new one."""
    name, error = request.POST.get("name", "").strip(), ""
    if request.method == "POST":
        try:
            made = groups.create_group(name)
        except ApiError as exc:
            error = exc.message
        else:
            messages.success(request, f"The group {name} is created. Add its members.")
            return redirect("group", made.pk)
    found = Group.objects.annotate(member_count=Count("user")).order_by("name")
    context = {
        "groups": found,
        "fixed": {ADMINS, USERS},
        "everybody": USERS,
        "user_count": User.objects.count(),
        "name": name,
        "error": error,
    }
    return render(request, "accounts/groups.html", context, status=400 if error else 200)


@require_safe
@admin_required
def group(request: HttpRequest, group_id: int) -> HttpResponse:
    """One group and its members."""
    return _group_page(request, get_object_or_404(Group, pk=group_id))


@require_POST
@admin_required
def change_member(request: HttpRequest, group_id: int) -> HttpResponse:
    """Add a user by name, or take one out."""
    found = get_object_or_404(Group, pk=group_id)
    name = request.POST.get("user", "").replace("\x00", "").strip()
    is_added = request.POST.get("action") != "remove"
    user = User.objects.filter(username=name).first()
    if user is None:
        return _group_page(request, found, name=name, error=f"There is no user “{name[:150]}”.")
    try:
        groups.set_member(found, user, is_member=is_added)
    except ApiError as exc:
        return _group_page(request, found, name=name, error=exc.message)
    messages.success(request, f"{name} is {'now' if is_added else 'no longer'} in {found.name}.")
    return redirect("group", group_id)


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
def delete_group(request: HttpRequest, group_id: int) -> HttpResponse:
    """Ask, then delete the group with everything that was granted to it."""
    found = get_object_or_404(Group, pk=group_id)
    if request.method == "POST":
        try:
            directory.remove_group(found)
        except ApiError as exc:
            messages.error(request, exc.message)
        else:
            messages.success(request, f"The group {found.name} is deleted.")
        return redirect("groups")
    return confirm_page(
        request,
        title=f"Delete the group {found.name}?",
        text=[
            "Its members lose what they may do only through this group, on endpoints and models. "
            "Their accounts stay."
        ],
        button="Delete group",
        cancel_url=reverse("group", args=[group_id]),
    )


def _group_page(
    request: HttpRequest, found: Group, *, name: str = "", error: str = ""
) -> HttpResponse:
    members = groups.members_of(found)
    context = {
        "group": found,
        "members": members,
        "is_fixed": found.name in {ADMINS, USERS},
        "is_everybody": found.name == USERS,
        "known": groups.known_names(),
        "name": name,
        "error": error,
    }
    return render(request, "accounts/group.html", context, status=400 if error else 200)
