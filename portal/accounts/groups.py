"""Groups and who is in them.

Groups are known elsewhere by name. `users` holds everybody and cannot be changed; membership in
`admins` is the admin role itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from portal.accounts.models import ADMINS, USERS, User
from portal.accounts.services import publish_user, set_admin
from portal.audit import services as audit
from portal.audit.services import Action, ObjectKind
from portal.rest import InvalidParameterValue, ResourceAlreadyExists, ResourceDoesNotExist

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 @.+_-]{0,149}")
MAX_OFFERED = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Whom a form offers to pick from."""

    users: tuple[str, ...]
    groups: tuple[str, ...]


def known_names() -> Names:
    """Active users and all groups, by name; only the first of very many."""
    users = User.objects.filter(is_active=True).order_by("username")
    groups = {*Group.objects.values_list("name", flat=True)[:MAX_OFFERED], ADMINS, USERS}
    return Names(
        users=tuple(users.values_list("username", flat=True)[:MAX_OFFERED]),
        groups=tuple(sorted(groups)),
    )


def find_group(pk: int) -> Group:
    """The group of this id.

    Raises:
        ResourceDoesNotExist: There is none.
    """
    found = Group.objects.filter(pk=pk).first()
    if found is None:
        raise ResourceDoesNotExist(f"There is no group {pk}.")
    return found


def members_of(group: Group) -> QuerySet[User]:
    """Who is in the group: everybody in `users`, else who was added."""
    everybody = User.objects.order_by("username")
    return everybody if group.name == USERS else everybody.filter(groups=group)


def create_group(name: str) -> Group:
    """Make an empty group.

    Raises:
        InvalidParameterValue: The name cannot be one.
        ResourceAlreadyExists: There is one of this name.
    """
    if not NAME.fullmatch(name):
        raise InvalidParameterValue(
            f"“{name[:150]}” is not a group's name. Use letters, digits, spaces and @ . + - _, "
            "150 characters at most, and begin with a letter or a digit."
        )
    try:
        with transaction.atomic():
            group = Group.objects.create(name=name)
            audit.record(Action.GROUP_CREATE, ObjectKind.GROUP, name)
            return group
    except IntegrityError:
        raise ResourceAlreadyExists(f"There is a group “{name}” already.") from None


@transaction.atomic
def delete_group(group: Group) -> None:
    """Delete a group; what it was granted is the callers' to take away.

    Raises:
        InvalidParameterValue: It is one of the two that are always there.
    """
    if group.name in {ADMINS, USERS}:
        raise InvalidParameterValue(f"The group “{group.name}” is always there.")
    members = list(members_of(group))
    audit.record(Action.GROUP_DELETE, ObjectKind.GROUP, group.name, members=len(members))
    group.delete()
    _publish(members)


@transaction.atomic
def set_member(group: Group, user: User, *, is_member: bool) -> None:
    """Put a user into a group, or take them out; tokens know of it at once.

    Raises:
        InvalidParameterValue: Everybody is in `users`; the last admin stays in `admins`.
    """
    if group.name == USERS:
        raise InvalidParameterValue(f"Everybody is in the group “{USERS}”.")
    if group.name == ADMINS:
        set_admin(user, is_admin=is_member)
        return
    if is_member:
        user.groups.add(group)
    else:
        user.groups.remove(group)
    audit.record(
        Action.GROUP_MEMBER,
        ObjectKind.GROUP,
        group.name,
        member=user.username,
        is_member=is_member,
    )
    _publish([user])


def _publish(users: Iterable[User]) -> None:
    for user in users:
        publish_user(user)
