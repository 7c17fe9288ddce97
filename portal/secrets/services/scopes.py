"""Create, list, share and delete scopes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from django.db.models import Count, Max

from portal.accounts.models import ADMINS, USERS, User
from portal.audit import services as audit
from portal.audit.states import Action, ObjectKind
from portal.rest import (
    InvalidParameterValue,
    InvalidState,
    ResourceAlreadyExists,
    ResourceDoesNotExist,
)
from portal.secrets.models import ScopeAcl, SecretScope
from portal.secrets.services.access import find_scope, permission_of
from portal.secrets.states import ScopePermission

NAME = re.compile(r"[A-Za-z0-9_.@-]{1,128}")
MAX_SCOPES = 1000


def checked_name(name: str, what: str) -> str:
    """The name of a scope or a key.

    Raises:
        InvalidParameterValue: It cannot be one.
    """
    if not NAME.fullmatch(name) or not name.strip("."):
        raise _refused(
            what, f"“{name[:128]}” is not a name. Use 1 to 128 letters, digits, - _ . and @ only."
        )
    return name


def _refused(field: str, message: str) -> InvalidParameterValue:
    return InvalidParameterValue(
        f"{field}: {message}", details=[{"field": field, "message": message}]
    )


def create_scope(user: User, name: str, *, initial_manage_principal: str = "") -> SecretScope:
    """Create an empty scope that `user` manages, or everybody.

    Args:
        user: Who creates it.
        name: Its name.
        initial_manage_principal: "users" for everybody, else nothing.

    Raises:
        InvalidParameterValue: The name cannot be one; the principal is not "users".
        InvalidState: There are too many scopes.
        ResourceAlreadyExists: The name is taken.
    """
    checked_name(name, "scope")
    if initial_manage_principal not in {"", USERS}:
        raise _refused("initial_manage_principal", f"Only “{USERS}” can be given here.")
    if SecretScope.objects.count() >= MAX_SCOPES:
        raise InvalidState(f"There are {MAX_SCOPES} secret scopes already. Delete one first.")
    try:
        with transaction.atomic():
            scope = SecretScope.objects.create(name=name, created_by=user)
            ScopeAcl.objects.create(
                scope=scope,
                user=None if initial_manage_principal else user,
                group_name=initial_manage_principal,
                permission=ScopePermission.MANAGE,
            )
            audit.record(
                Action.SCOPE_CREATE,
                ObjectKind.SCOPE,
                name,
                user=user,
                managed_by=initial_manage_principal or user.username,
            )
    except IntegrityError:
        message = f"There is a secret scope “{name}” already. Choose another name."
        raise ResourceAlreadyExists(
            message, details=[{"field": "scope", "message": message}]
        ) from None
    return scope


@transaction.atomic
def delete_scope(user: User, name: str) -> None:
    """Delete a scope with its secrets; replicas that run keep what they were started with."""
    scope = find_scope(user, name, ScopePermission.MANAGE)
    keys = scope.secrets.count()
    scope.delete()
    audit.record(Action.SCOPE_DELETE, ObjectKind.SCOPE, name, user=user, keys=keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeView:
    """A scope of a list, with what its reader may do."""

    name: str
    created_by: str
    created_at: datetime
    changed_at: datetime | None  # of the key that changed last
    keys: int
    permission: ScopePermission


def list_scopes(user: User) -> list[ScopeView]:
    """The scopes on which `user` has at least READ, in three queries."""
    scopes = (
        SecretScope.objects.readable_by(user)
        .select_related("created_by")
        .prefetch_related("acls")
        .annotate(key_count=Count("secrets"), last_change=Max("secrets__changed_at"))
        .order_by("name")  # an aggregate loses the model's own order
    )
    return [
        ScopeView(
            name=scope.name,
            created_by=scope.created_by.username if scope.created_by else "",
            created_at=scope.created_at,
            changed_at=scope.last_change,  # type: ignore[attr-defined]  # annotated
            keys=scope.key_count,  # type: ignore[attr-defined]  # annotated
            permission=permission_of(user, scope) or ScopePermission.READ,
        )
        for scope in scopes
    ]


# ---------------------------------------------------------------- permissions


def list_acls(user: User, name: str) -> list[ScopeAcl]:
    """Who has which permission on the scope; admins manage it besides."""
    scope = find_scope(user, name, ScopePermission.MANAGE)
    return sorted(scope.acls.select_related("user"), key=lambda acl: acl.principal)


def get_acl(user: User, name: str, principal: str) -> ScopeAcl:
    """The permission of one user or group.

    Raises:
        ResourceDoesNotExist: They have none.
    """
    for acl in list_acls(user, name):
        if acl.principal == principal:
            return acl
    raise ResourceDoesNotExist(f"“{principal[:150]}” has no permission on secret scope “{name}”.")


@transaction.atomic
def put_acl(user: User, name: str, principal: str, permission: ScopePermission) -> None:
    """Give a user or a group (by name) a permission, or another one.

    Raises:
        InvalidParameterValue: There is no such user or group.
    """
    scope = find_scope(user, name, ScopePermission.MANAGE)
    member = User.objects.filter(username=principal).first()
    is_group = principal in {ADMINS, USERS} or Group.objects.filter(name=principal).exists()
    if member is None and not is_group:
        raise _refused("principal", f"There is no user or group “{principal[:150]}”.")
    ScopeAcl.objects.update_or_create(
        scope=scope,
        user=member,
        group_name="" if member else principal,
        defaults={"permission": permission},
    )
    audit.record(
        Action.SCOPE_PERMISSIONS,
        ObjectKind.SCOPE,
        name,
        user=user,
        principal=principal,
        permission=permission,
    )


def forget_group(group_name: str) -> None:
    """Take away everything that a group was granted, on every scope."""
    ScopeAcl.objects.filter(user=None, group_name=group_name).delete()


@transaction.atomic
def delete_acl(user: User, name: str, principal: str) -> None:
    """Take a user's or a group's permission away.

    Raises:
        ResourceDoesNotExist: They have none.
    """
    get_acl(user, name, principal).delete()
    audit.record(
        Action.SCOPE_PERMISSIONS,
        ObjectKind.SCOPE,
        name,
        user=user,
        principal=principal,
        permission=None,
    )
