"""Who sees an endpoint and what they may do on it: the one table for API, pages and gateway."""

from __future__ import annotations

from portal.accounts.models import User
from portal.endpoints.models import Endpoint
from portal.endpoints.states import PERMISSION_RANK, PermissionLevel
from portal.rest import PermissionDenied, ResourceDoesNotExist


def get_endpoint(user: User, name: str) -> Endpoint:
    """The endpoint of that name.

    Raises:
        ResourceDoesNotExist: There is none, or `user` may not see it.
    """
    found = Endpoint.objects.visible_to(user).filter(name=name).first()
    if found is None:
        raise ResourceDoesNotExist(f"There is no endpoint “{name}”, or you may not see it.")
    return found


def get_endpoint_by_id(user: User, public_id: str) -> Endpoint:
    """The endpoint of that public id, as the permission calls name it.

    Raises:
        ResourceDoesNotExist: There is none, or `user` may not see it.
    """
    found = Endpoint.objects.visible_to(user).filter(public_id=public_id).first()
    if found is None:
        raise ResourceDoesNotExist(f"There is no endpoint with id “{public_id}”.")
    return found


def level_of(user: User, endpoint: Endpoint) -> PermissionLevel | None:
    """The highest level that `user` has on `endpoint`, by name, by group, as creator or admin."""
    if user.is_workspace_admin or endpoint.creator_id == user.pk:
        return PermissionLevel.CAN_MANAGE
    levels = [
        PermissionLevel(permission.level)
        for permission in endpoint.permissions.all()
        if permission.user_id == user.pk or permission.group_name in user.group_names
    ]
    return max(levels, key=PERMISSION_RANK.__getitem__, default=None)


def require(user: User, endpoint: Endpoint, level: PermissionLevel) -> None:
    """Let `user` pass with at least `level` on `endpoint`.

    Raises:
        ResourceDoesNotExist: They may not even see it.
        PermissionDenied: They see it, but may not do this.
    """
    found = level_of(user, endpoint)
    if found is None:
        raise ResourceDoesNotExist(
            f"There is no endpoint “{endpoint.name}”, or you may not see it."
        )
    if PERMISSION_RANK[found] < PERMISSION_RANK[level]:
        raise PermissionDenied(
            f"This needs “{level.label}” on endpoint “{endpoint.name}”; you have "
            f"“{found.label}”. Ask {endpoint.creator} or a workspace admin."
        )
