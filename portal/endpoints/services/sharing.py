"""What changes without a deployment: tags, notifications, limits, permissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction

from portal.accounts.models import ADMINS, USERS, User
from portal.endpoints.models import Endpoint, EndpointPermission, EndpointTag
from portal.endpoints.routes import publish
from portal.endpoints.services import auditing
from portal.endpoints.services.access import require
from portal.endpoints.services.limits import check_rate_limits
from portal.endpoints.services.moves import record
from portal.endpoints.services.validation import Problems, check_tags
from portal.endpoints.states import PermissionLevel
from serving.permissions import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A level for a user (by name) or for a group (by name)."""

    level: PermissionLevel
    user_name: str = ""
    group_name: str = ""


@transaction.atomic
def update_tags(
    user: User, endpoint: Endpoint, *, add: Mapping[str, str], delete: Iterable[str]
) -> None:
    """Add or change tags, and delete some; unknown keys to delete are nothing."""
    require(user, endpoint, Action.UPDATE_TAGS)
    problems = Problems()
    check_tags(add, problems)
    problems.raise_if_any()
    _lock(endpoint)
    endpoint.tags.filter(key__in=list(delete)).delete()
    for key, value in add.items():
        EndpointTag.objects.update_or_create(endpoint=endpoint, key=key, defaults={"value": value})
    _changed(user, endpoint, "tags")


@transaction.atomic
def set_description(user: User, endpoint: Endpoint, description: str) -> None:
    """Describe the endpoint."""
    require(user, endpoint, Action.UPDATE_DESCRIPTION)
    endpoint.description = description
    _changed(user, endpoint, "description")


@transaction.atomic
def set_notifications(user: User, endpoint: Endpoint, wanted: Mapping[str, Sequence[str]]) -> None:
    """Remember who hears of updates by e-mail."""
    require(user, endpoint, Action.UPDATE_NOTIFICATIONS)
    endpoint.email_notifications = {key: list(value) for key, value in wanted.items()}
    _changed(user, endpoint, "email_notifications")


@transaction.atomic
def set_rate_limits(user: User, endpoint: Endpoint, limits: Sequence[Mapping[str, Any]]) -> None:
    """Replace the rate limits of the older form.

    Raises:
        InvalidParameterValue: With each wrong limit.
    """
    require(user, endpoint, Action.UPDATE_LIMITS)
    problems = Problems()
    check_rate_limits(limits, problems)
    problems.raise_if_any()
    endpoint.rate_limits = [dict(limit) for limit in limits]
    _changed(user, endpoint, "rate_limits")


@transaction.atomic
def set_ai_gateway(user: User, endpoint: Endpoint, wanted: Mapping[str, Any]) -> None:
    """Replace the AI Gateway's settings, rate limits included.

    Raises:
        InvalidParameterValue: With each wrong limit.
    """
    require(user, endpoint, Action.UPDATE_LIMITS)
    problems = Problems()
    check_rate_limits(wanted.get("rate_limits", ()), problems)
    problems.raise_if_any()
    endpoint.ai_gateway = dict(wanted)
    _changed(user, endpoint, "ai_gateway")


def _lock(endpoint: Endpoint) -> None:
    """Let one change of many rows at a time through: two must not mix, nor wait for each other."""
    Endpoint.objects.select_for_update().filter(pk=endpoint.pk).first()


def _changed(user: User, endpoint: Endpoint, what: str) -> None:
    endpoint.changed_by = user
    fields = [] if what == "tags" else [what]
    endpoint.save(update_fields=[*fields, "changed_by", "updated_at"])
    words = what.replace("_", " ").replace("ai gateway", "AI Gateway settings")
    record(endpoint, f"{what}_changed", f"{user} changed the {words}.", actor=user)
    auditing.note(user, endpoint, auditing.Action.ENDPOINT_CHANGE, changed=what)
    publish(endpoint)


@transaction.atomic
def set_permissions(
    user: User, endpoint: Endpoint, grants: Sequence[Grant], *, replace: bool
) -> None:
    """Grant levels; `replace` takes away whatever is not named.

    The creator and the workspace's admins manage the endpoint whatever is granted.

    Raises:
        InvalidParameterValue: Somebody does not exist, is named twice, or would be locked out.
    """
    require(user, endpoint, Action.CHANGE_PERMISSIONS)
    problems = Problems()
    planned = [_permission(endpoint, grant, problems) for grant in grants]
    named = [(grant.user_name, grant.group_name) for grant in grants]
    for name in sorted({name for name in named if named.count(name) > 1}):
        problems.add("access_control_list", f"“{name[0] or name[1]}” is named twice.")
    problems.raise_if_any()
    _lock(endpoint)
    if replace:
        endpoint.permissions.all().delete()
    for permission in planned:
        if permission is not None:
            EndpointPermission.objects.update_or_create(
                endpoint=endpoint,
                user=permission.user,
                group_name=permission.group_name,
                defaults={"level": permission.level},
            )
    levels = {grant.user_name or grant.group_name: grant.level for grant in grants}
    _permissions_changed(user, endpoint, granted=levels, replaced_all=replace)


@transaction.atomic
def remove_permission(
    user: User, endpoint: Endpoint, *, user_name: str = "", group_name: str = ""
) -> None:
    """Take away what one user or group was granted; there may be nothing to take away."""
    require(user, endpoint, Action.CHANGE_PERMISSIONS)
    granted = endpoint.permissions.filter(group_name=group_name)
    granted = granted.filter(user__username=user_name) if user_name else granted.filter(user=None)
    if granted.delete()[0]:
        _permissions_changed(user, endpoint, removed=user_name or group_name)


@transaction.atomic
def forget_group(group_name: str) -> None:
    """Take away everything that a group was granted, on every endpoint."""
    granted = EndpointPermission.objects.filter(user=None, group_name=group_name)
    for endpoint in Endpoint.objects.existing().filter(permissions__in=granted):
        publish(endpoint)
    granted.delete()


def _permissions_changed(user: User, endpoint: Endpoint, **detail: Any) -> None:
    endpoint.changed_by = user
    endpoint.save(update_fields=["changed_by", "updated_at"])
    record(endpoint, "permissions_changed", f"{user} changed the permissions.", actor=user)
    auditing.note(user, endpoint, auditing.Action.ENDPOINT_PERMISSIONS, **detail)
    publish(endpoint)


def _permission(endpoint: Endpoint, grant: Grant, problems: Problems) -> EndpointPermission | None:
    """The row of a grant; none for those who manage the endpoint anyway."""
    is_inherent = grant.group_name == ADMINS or grant.user_name == endpoint.creator.username
    if is_inherent:
        if grant.level != PermissionLevel.CAN_MANAGE:
            who = grant.user_name or f"The group “{grant.group_name}”"
            problems.add(
                "access_control_list",
                f"{who} always has {PermissionLevel.CAN_MANAGE} here: the creator and the "
                "workspace's admins cannot be locked out. Leave them out of the list.",
            )
        return None
    permission = EndpointPermission(
        endpoint=endpoint, group_name=grant.group_name, level=grant.level
    )
    if grant.user_name:
        permission.user = User.objects.filter(username=grant.user_name).first()
        if permission.user is None:
            problems.add("access_control_list", f"There is no user “{grant.user_name}”.")
    elif grant.group_name != USERS and not Group.objects.filter(name=grant.group_name).exists():
        problems.add("access_control_list", f"There is no group “{grant.group_name}”.")
    return permission
