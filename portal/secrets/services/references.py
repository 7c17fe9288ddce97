"""`{{secrets/scope/key}}` as the whole value of a served entity's environment variable.

A reference stays a reference everywhere but in the specification that a replica is launched with.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from portal.accounts.models import User
from portal.rest import PermissionDenied, ResourceDoesNotExist
from portal.secrets import encryption
from portal.secrets.models import Secret
from portal.secrets.services.access import find_scope
from portal.secrets.states import ScopePermission

LOOKS_LIKE_ONE = re.compile(r"\{\{\s*secrets/.*\}\}", re.DOTALL)
REFERENCE = re.compile(r"\{\{\s*secrets/([A-Za-z0-9_.@-]{1,128})/([A-Za-z0-9_.@-]{1,128})\s*\}\}")
MAX_VARIABLE_BYTES = 120 * 2**10
"""Linux takes at most 128 KiB for a variable with its name."""


class SecretUnavailable(Exception):
    """A reference cannot be resolved for this user now; the message says why and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Reference:
    """A secret that a variable names."""

    scope: str
    key: str

    def __str__(self) -> str:
        return f"{{{{secrets/{self.scope}/{self.key}}}}}"


def reference_in(value: str) -> Reference | None:
    """The secret that a variable's whole value names; None for a plain value.

    Raises:
        SecretUnavailable: It looks like a reference but is none.
    """
    text = value.strip()
    if not LOOKS_LIKE_ONE.fullmatch(text):
        return None
    found = REFERENCE.fullmatch(text)
    if found is None:
        raise SecretUnavailable(
            "it looks like a secret but is none. Write {{secrets/<scope>/<key>}}."
        )
    return Reference(found[1], found[2])


def resolve(reader: User, reference: Reference) -> str:
    """The secret's value as text, for somebody who may read its scope.

    Raises:
        SecretUnavailable: They may not, it does not exist, or it cannot be a variable's value.
    """
    try:
        scope = find_scope(reader, reference.scope, ScopePermission.READ)
    except (ResourceDoesNotExist, PermissionDenied):
        raise SecretUnavailable(
            f"there is no secret scope “{reference.scope}”, or {reader.username} has no READ "
            "permission on it."
        ) from None
    secret = Secret.objects.filter(scope=scope, key=reference.key).first()
    if secret is None:
        raise SecretUnavailable(
            f"secret scope “{reference.scope}” has no key “{reference.key}”. Put it first."
        )
    try:
        value = encryption.decrypt(reference.scope, reference.key, secret.encrypted)
    except encryption.CannotDecrypt:
        raise SecretUnavailable(
            f"the value of {reference} cannot be decrypted: the server's key has changed. "
            "Put it again."
        ) from None
    if len(value) > MAX_VARIABLE_BYTES:
        raise SecretUnavailable(
            f"the value of {reference} has {len(value)} bytes; an environment variable takes "
            f"{MAX_VARIABLE_BYTES}."
        )
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SecretUnavailable(
            f"the value of {reference} is binary; an environment variable takes text. "
            "Put it as base64 text."
        )
    return text


def problems_with(
    variables: Mapping[str, str], *, user: User, creator: User, used: Collection[str] = ()
) -> list[str]:
    """What is wrong with the references among variables, each with its variable's name.

    Args:
        variables: Names to values.
        user: Who asks for them.
        creator: Of the endpoint, whose permission counts when a replica is launched.
        used: Values that the endpoint has already, which `user` may leave as they are; nobody may
            bring in a secret of the creator's that they may not read themselves.
    """
    problems = []
    for name, value in variables.items():
        try:
            reference = reference_in(value)
            if reference is not None:
                if user.pk != creator.pk and value not in used:
                    resolve(user, reference)
                resolve(creator, reference)
        except SecretUnavailable as exc:
            problems.append(f"{name[:64]}: {exc.message}")
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Variables with the secrets' values in place, and the names of those that hold one."""

    variables: Mapping[str, str]
    secret_names: tuple[str, ...]


def resolve_all(variables: Mapping[str, str], creator: User) -> Resolved:
    """Put the values in place of the references; only for the launch of a replica.

    Raises:
        SecretUnavailable: For the first one that cannot be.
    """
    found: dict[str, str] = {}
    secret_names = []
    for name, value in variables.items():
        try:
            reference = reference_in(value)
            found[name] = value if reference is None else resolve(creator, reference)
        except SecretUnavailable as exc:
            raise SecretUnavailable(f"Environment variable {name}: {exc.message}") from None
        if reference is not None:
            secret_names.append(name)
    return Resolved(variables=found, secret_names=tuple(secret_names))
