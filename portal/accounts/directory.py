"""Changes of users and groups as directory clients (SCIM) and pages ask for them.

A change of a group reaches what other apps granted to it, so this module looks at those apps'
services; nothing looks at it but the API and the pages.
"""

from __future__ import annotations

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from portal.accounts import groups, services
from portal.accounts.models import USERS, PersonalAccessToken, User
from portal.accounts.scim import GroupChange, UserChange
from portal.audit import services as audit
from portal.audit.services import Action, ObjectKind
from portal.endpoints import services as endpoints
from portal.registry import services as registry
from portal.rest import InvalidParameterValue, ResourceAlreadyExists, ResourceDoesNotExist
from portal.secrets import services as secrets


def find_user(pk: str) -> User:
    """The user of this id.

    Raises:
        ResourceDoesNotExist: There is none.
    """
    found = User.objects.filter(pk=_number(pk)).first()
    if found is None:
        raise ResourceDoesNotExist(f"There is no user {pk[:64]}.")
    return found


def find_group(pk: str) -> Group:
    """The group of this id.

    Raises:
        ResourceDoesNotExist: There is none.
    """
    return groups.find_group(_number(pk))


def _number(pk: str) -> int:
    return int(pk) if pk.isascii() and pk.isdecimal() and len(pk) < 19 else 0


@transaction.atomic
def create_user(username: str, change: UserChange, member_of: frozenset[int]) -> User:
    """Make an account without a password that anybody knows; an admin can reset it.

    Raises:
        InvalidParameterValue: The name cannot be one, or a group does not exist.
        ResourceAlreadyExists: There is a user of this name.
    """
    try:
        User.username.field.run_validators(username)
    except ValidationError as exc:
        raise InvalidParameterValue(f"userName: {exc.messages[0]}") from None
    if User.objects.filter(username=username).exists():
        raise ResourceAlreadyExists(
            f"There is a user {username} already. A deactivated one is brought back by setting "
            "active to true."
        )
    try:
        with transaction.atomic():
            user, _ = services.create_user(username=username)
    except IntegrityError:
        raise ResourceAlreadyExists(f"There is a user {username} already.") from None
    change_user(user, change)
    found = Group.objects.in_bulk(member_of)
    for pk in sorted(member_of):
        if pk not in found:
            raise InvalidParameterValue(f"There is no group {pk}.")
        if found[pk].name != USERS:
            groups.set_member(found[pk], user, is_member=True)
    return user


@transaction.atomic
def change_user(user: User, change: UserChange) -> None:
    """Change what is asked for and different.

    Raises:
        InvalidParameterValue: The email is none, or the last admin would be deactivated.
    """
    wanted = {
        "first_name": change.first_name,
        "last_name": change.last_name,
        "email": change.email,
    }
    changed = [k for k, v in wanted.items() if v is not None and v != getattr(user, k)]
    for name in changed:
        setattr(user, name, wanted[name])
    if changed:
        try:
            user.clean_fields(exclude={"password", "username"})
        except ValidationError as exc:
            raise InvalidParameterValue(exc.messages[0]) from None
        user.save(update_fields=changed)
        audit.record(Action.USER_UPDATE, ObjectKind.USER, user.username, changed=changed)
    if change.is_active is not None and change.is_active != user.is_active:
        services.set_active(user, is_active=change.is_active)


@transaction.atomic
def remove_user(user: User) -> None:
    """Shut a user out for good: no login, no token, no group, no role.

    The account stays, deactivated: endpoints and models need their owner, and nobody else must
    come to what was granted to this name.

    Raises:
        InvalidParameterValue: He is the last admin.
    """
    if user.is_active:
        services.set_active(user, is_active=False)
    for token in PersonalAccessToken.objects.filter(user=user, revoked_at=None):
        services.revoke_token(token)
    for group in user.groups.exclude(name=USERS):
        groups.set_member(group, user, is_member=False)


@transaction.atomic
def change_group(group: Group, change: GroupChange) -> None:
    """Let users join and leave.

    Raises:
        InvalidParameterValue: A member is no user, the group is `users`, the last admin would
            leave, or another name is asked for.
    """
    if change.name is not None and change.name != group.name:
        raise InvalidParameterValue(
            "Groups cannot be renamed: permissions name them. Create another one."
        )
    present = frozenset(groups.members_of(group).values_list("pk", flat=True))
    if group.name == USERS and (change.only in {None, present}) and not change.leaving:
        return
    leaving = change.leaving & present
    if change.only is not None:
        leaving |= present - change.only - change.joining
    joining = (change.joining | (change.only or frozenset())) - present - leaving
    users = _users(joining | leaving)
    for pk in sorted(joining):  # the first, so that somebody can take over `admins`
        groups.set_member(group, users[pk], is_member=True)
    for pk in sorted(leaving):
        groups.set_member(group, users[pk], is_member=False)


def _users(pks: frozenset[int]) -> dict[int, User]:
    found = User.objects.in_bulk(pks)
    for pk in sorted(pks):
        if pk not in found:
            raise InvalidParameterValue(f"There is no user {pk}. Groups hold users only.")
    return found


@transaction.atomic
def create_group(name: str, members: frozenset[int]) -> Group:
    """Make a group with members.

    Raises:
        InvalidParameterValue: The name cannot be one, or a member is no user.
        ResourceAlreadyExists: There is one of this name.
    """
    group = groups.create_group(name)
    change_group(group, GroupChange(joining=members))
    return group


@transaction.atomic
def remove_group(group: Group) -> None:
    """Delete a group with everything that was granted to it.

    Raises:
        InvalidParameterValue: It is one of the two that are always there.
    """
    endpoints.forget_group(group.name)
    registry.forget_group(group.name)
    secrets.forget_group(group.name)
    groups.delete_group(group)
