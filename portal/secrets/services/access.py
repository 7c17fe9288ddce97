"""Who may do what with a scope: the one table for API, pages and endpoints."""

from __future__ import annotations

from portal.accounts.models import User
from portal.rest import PermissionDenied, ResourceDoesNotExist
from portal.secrets.models import SecretScope
from portal.secrets.states import PERMISSION_RANK, ScopePermission


def permission_of(user: User, scope: SecretScope) -> ScopePermission | None:
    """The highest permission that `user` has on `scope`, by name, by group or as admin."""
    if user.is_workspace_admin:
        return ScopePermission.MANAGE
    found = [
        ScopePermission(acl.permission)
        for acl in scope.acls.all()
        if acl.user_id == user.pk or acl.group_name in user.group_names
    ]
    return max(found, key=PERMISSION_RANK.__getitem__, default=None)


def find_scope(user: User, name: str, needed: ScopePermission) -> SecretScope:
    """The scope of that name.

    Raises:
        ResourceDoesNotExist: There is none, or `user` may not even see it.
        PermissionDenied: They see it, but may not do this.
    """
    scope = SecretScope.objects.filter(name=name).prefetch_related("acls").first()
    has = permission_of(user, scope) if scope else None
    if scope is None or has is None:
        raise ResourceDoesNotExist(
            f"There is no secret scope “{name[:128]}”, or you may not see it."
        )
    if PERMISSION_RANK[has] < PERMISSION_RANK[needed]:
        raise PermissionDenied(
            f"This needs {needed} on secret scope “{name}”; you have {has}. Ask who manages the "
            "scope, or a workspace admin."
        )
    return scope
