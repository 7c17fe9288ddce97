"""Users, groups and personal access tokens: everything that writes them.

Every change that decides whom a token stands for is published to the gateways once it is
committed, so that a revoked token or a deactivated user is refused at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from portal import bus
from portal.accounts.authentication import sha256
from portal.accounts.models import ADMINS, USERS, PersonalAccessToken, User
from portal.audit import services as audit
from portal.audit.states import Action, ObjectKind, Outcome
from portal.rest import InvalidParameterValue, ResourceAlreadyExists, ResourceDoesNotExist
from serving.spec import Principal

MAX_COMMENT = 256
MAX_LIFETIME_S = 10 * 365 * 24 * 3600
FIRST_ADMIN = "admin"


# ---------------------------------------------------------------- tokens


@transaction.atomic
def create_token(
    user: User, *, comment: str = "", lifetime_s: int | None = None, public_id: str = ""
) -> tuple[PersonalAccessToken, str]:
    """Make a token for `user`; the second part is its value, which is shown now and never again.

    Args:
        user: Whom the token stands for.
        comment: What it is for.
        lifetime_s: From now; None for a token that does not expire.
        public_id: Its id, chosen beforehand by a form so that it cannot be sent twice.

    Raises:
        InvalidParameterValue: The comment is too long or the lifetime out of bounds.
        ResourceAlreadyExists: `public_id` was used before.
    """
    if len(comment) > MAX_COMMENT:
        raise InvalidParameterValue(
            f"comment has {len(comment)} characters; {MAX_COMMENT} are allowed. Shorten it."
        )
    if lifetime_s is not None and not 1 <= lifetime_s <= MAX_LIFETIME_S:
        raise InvalidParameterValue(
            f"lifetime_seconds is {lifetime_s}; allowed are 1 to {MAX_LIFETIME_S}, "
            "or none at all for a token that does not expire."
        )
    value = f"shoal-{secrets.token_urlsafe(32)}"
    token, is_new = PersonalAccessToken.objects.get_or_create(
        public_id=public_id or new_public_id(),
        defaults={
            "user": user,
            "comment": comment,
            "sha256": sha256(value),
            "expires_at": None
            if lifetime_s is None
            else timezone.now() + timedelta(seconds=lifetime_s),
        },
    )
    if not is_new:
        raise ResourceAlreadyExists("This token was created before; its value is not shown again.")
    audit.record(
        Action.TOKEN_CREATE,
        ObjectKind.TOKEN,
        token.public_id,
        owner=user.username,
        lifetime_s=lifetime_s,
    )
    _publish([token])
    return token, value


def new_public_id() -> str:
    """An id for a token; it is no secret."""
    return secrets.token_hex(16)


def find_token(user: User, public_id: str) -> PersonalAccessToken:
    """A token that `user` may revoke and that is not revoked yet: his own, or any for an admin.

    Raises:
        ResourceDoesNotExist: There is none.
    """
    tokens = PersonalAccessToken.objects.filter(public_id=public_id, revoked_at=None)
    if not user.is_workspace_admin:
        tokens = tokens.filter(user=user)
    token = tokens.select_related("user").first()
    if token is None:
        raise ResourceDoesNotExist(f"There is no token {public_id[:64]}.")
    return token


@transaction.atomic
def revoke_token(token: PersonalAccessToken) -> None:
    """Refuse the token from now on; doing it again changes nothing."""
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        audit.record(
            Action.TOKEN_REVOKE, ObjectKind.TOKEN, token.public_id, owner=token.user.username
        )
    transaction.on_commit(partial(bus.remove_principal, token.sha256))


def live_tokens(user: User) -> list[PersonalAccessToken]:
    """The user's tokens that are not revoked (expired ones too), newest first."""
    return list(
        PersonalAccessToken.objects.filter(user=user, revoked_at=None).order_by("-created_at")
    )


def note_use(used_at: Mapping[str, float]) -> set[str]:
    """Keep when tokens were last used (SHA-256 to seconds since 1970); never moves a time back.

    Returns:
        The digests that belong to no token.
    """
    known = {t.sha256: t for t in PersonalAccessToken.objects.filter(sha256__in=list(used_at))}
    changed = []
    for digest, token in known.items():
        moment = datetime.fromtimestamp(used_at[digest], tz=UTC)
        if token.last_used_at is None or token.last_used_at < moment:
            token.last_used_at = moment
            changed.append(token)
    PersonalAccessToken.objects.bulk_update(changed, ["last_used_at"], batch_size=500)
    return set(used_at) - set(known)


def all_principals() -> dict[str, Principal]:
    """Every usable token's SHA-256 with whom it stands for, as gateways need it."""
    tokens = (
        PersonalAccessToken.objects.usable().select_related("user").prefetch_related("user__groups")
    )
    return {token.sha256: principal_of(token) for token in tokens}


def principal_of(token: PersonalAccessToken) -> Principal:
    """Whom the token stands for."""
    user = token.user
    groups = {group.name for group in user.groups.all()} | {USERS}
    return Principal(
        user_id=str(user.pk),
        user_name=user.username,
        is_admin=user.is_superuser or ADMINS in groups,
        groups=tuple(sorted(groups)),
        expires_at=None if token.expires_at is None else token.expires_at.timestamp(),
    )


def publish_user(user: User) -> None:
    """Tell the gateways anew, after the commit, what each of the user's tokens stands for."""
    user.__dict__.pop("group_names", None)
    _publish(PersonalAccessToken.objects.filter(user=user, revoked_at=None))


def _publish(tokens: Iterable[PersonalAccessToken]) -> None:
    for token in tokens:
        transaction.on_commit(partial(_publish_now, token.pk))


def _publish_now(token_id: int) -> None:
    token = (
        PersonalAccessToken.objects.select_related("user")
        .prefetch_related("user__groups")
        .filter(pk=token_id)
        .first()
    )
    if token is None:
        return
    if PersonalAccessToken.objects.usable().filter(pk=token_id).exists():
        bus.publish_principal(token.sha256, principal_of(token))
    else:
        bus.remove_principal(token.sha256)


# ---------------------------------------------------------------- users and groups


def ensure_groups() -> None:
    """Make the groups that clients expect."""
    for name in (ADMINS, USERS):
        Group.objects.get_or_create(name=name)


@transaction.atomic
def ensure_admin(password: str | None) -> tuple[User, str | None]:
    """Make the first admin when there is none.

    Returns:
        An admin, and his password when he was made now: `password`, or a random one.
    """
    ensure_groups()
    found = (
        User.objects.filter(is_active=True, groups__name=ADMINS).order_by("pk").first()
        or User.objects.filter(is_active=True, is_superuser=True).order_by("pk").first()
    )
    if found is not None:
        return found, None
    made = password or secrets.token_urlsafe(12)
    user, _ = User.objects.get_or_create(username=FIRST_ADMIN)
    user.set_password(made)
    user.is_active = True
    user.save()
    user.groups.add(*Group.objects.filter(name__in=(ADMINS, USERS)))
    audit.record(Action.USER_CREATE, ObjectKind.USER, user.username, is_admin=True)
    publish_user(user)
    return user, made


@transaction.atomic
def create_user(*, username: str, email: str = "", is_admin: bool = False) -> tuple[User, str]:
    """Make an account; the second part is its first password, a random one."""
    ensure_groups()
    password = secrets.token_urlsafe(12)
    user = User.objects.create_user(username=username, email=email, password=password)
    user.groups.add(Group.objects.get(name=USERS))
    if is_admin:
        user.groups.add(Group.objects.get(name=ADMINS))
    audit.record(Action.USER_CREATE, ObjectKind.USER, username, is_admin=is_admin)
    return user, password


@transaction.atomic
def set_active(user: User, *, is_active: bool) -> None:
    """Let the user log in, or refuse him and all his tokens from now on.

    Raises:
        InvalidParameterValue: He is the last admin.
    """
    if not is_active:
        _keep_one_admin(user)
    user.is_active = is_active
    user.save(update_fields=["is_active"])
    action = Action.USER_ACTIVATE if is_active else Action.USER_DEACTIVATE
    audit.record(action, ObjectKind.USER, user.username)
    publish_user(user)


@transaction.atomic
def set_admin(user: User, *, is_admin: bool) -> None:
    """Put the user among the workspace's admins, or take him out.

    Raises:
        InvalidParameterValue: He is the last admin.
    """
    ensure_groups()
    group = Group.objects.get(name=ADMINS)
    if is_admin:
        user.groups.add(group)
    else:
        _keep_one_admin(user)
        user.groups.remove(group)
        if user.is_superuser:
            user.is_superuser = False
            user.save(update_fields=["is_superuser"])
    audit.record(Action.USER_SET_ADMIN, ObjectKind.USER, user.username, is_admin=is_admin)
    publish_user(user)


@transaction.atomic
def reset_password(user: User) -> str:
    """Give the user a new random password, and return it; his sessions end."""
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    user.save(update_fields=["password"])
    audit.record(Action.USER_RESET_PASSWORD, ObjectKind.USER, user.username)
    return password


def note_password_change(user: User) -> None:
    """Record that the user has chosen a new password."""
    audit.record(Action.USER_CHANGE_PASSWORD, ObjectKind.USER, user.username, user=user)


# ---------------------------------------------------------------- logins


def note_login(user: User) -> None:
    """Record a login that worked."""
    audit.record(Action.LOGIN, ObjectKind.USER, user.username, user=user)


def note_failed_login(username: str) -> None:
    """Record a login that was refused.

    A name that nobody has is left out: it may be a password, typed into the wrong field.
    """
    is_known = User.objects.filter(username=username).exists()
    audit.record(
        Action.LOGIN,
        ObjectKind.USER,
        username if is_known else "(no such user)",
        outcome=Outcome.FAILED,
    )


def _keep_one_admin(user: User) -> None:
    others = User.objects.filter(is_active=True).exclude(pk=user.pk)
    if not (others.filter(groups__name=ADMINS) | others.filter(is_superuser=True)).exists():
        raise InvalidParameterValue(
            f"{user.username} is the only admin. Make another user an admin first."
        )
