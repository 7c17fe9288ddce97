"""Put, list and delete secrets. No call gives a value back."""

from __future__ import annotations

import base64
import binascii
from typing import NoReturn

from django.db import transaction

from portal.accounts.models import User
from portal.audit import services as audit
from portal.audit.states import Action, ObjectKind, Outcome
from portal.rest import (
    InvalidParameterValue,
    InvalidState,
    PermissionDenied,
    ResourceDoesNotExist,
)
from portal.secrets import encryption
from portal.secrets.models import Secret, SecretScope
from portal.secrets.services.access import find_scope
from portal.secrets.services.scopes import checked_name
from portal.secrets.states import ScopePermission

MAX_VALUE_BYTES = 128 * 2**10
MAX_KEYS = 1000


@transaction.atomic
def put_secret(user: User, scope_name: str, key: str, value: bytes) -> None:
    """Keep a value under a key, in place of the one that was there.

    Raises:
        InvalidParameterValue: The key cannot be one; the value is empty or too large.
        InvalidState: The scope is full.
    """
    scope = find_scope(user, scope_name, ScopePermission.WRITE)
    checked_name(key, "key")
    if not value:
        raise _refused("value", "The value is empty. Delete the key instead.")
    if len(value) > MAX_VALUE_BYTES:
        raise _refused("value", f"The value has {len(value)} bytes; {MAX_VALUE_BYTES} are allowed.")
    SecretScope.objects.select_for_update().get(pk=scope.pk)  # one count at a time
    is_new = not scope.secrets.filter(key=key).exists()
    if is_new and scope.secrets.count() >= MAX_KEYS:
        raise InvalidState(
            f"Secret scope “{scope_name}” holds {MAX_KEYS} keys already. Delete one first."
        )
    Secret.objects.update_or_create(
        scope=scope,
        key=key,
        defaults={
            "encrypted": encryption.encrypt(scope_name, key, value),
            "changed_by": user,
        },
    )
    audit.record(
        Action.SECRET_PUT, ObjectKind.SECRET, f"{scope_name}/{key}", user=user, is_new=is_new
    )


def from_base64(text: str) -> bytes:
    """The bytes that a client sent as `bytes_value`.

    Raises:
        InvalidParameterValue: It is not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _refused("bytes_value", "It is not base64.") from None


def _refused(field: str, message: str) -> InvalidParameterValue:
    return InvalidParameterValue(
        f"{field}: {message}", details=[{"field": field, "message": message}]
    )


@transaction.atomic
def delete_secret(user: User, scope_name: str, key: str) -> None:
    """Delete a key; replicas that run keep what they were started with.

    Raises:
        ResourceDoesNotExist: There is no such key.
    """
    scope = find_scope(user, scope_name, ScopePermission.WRITE)
    deleted, _ = scope.secrets.filter(key=key).delete()
    if not deleted:
        raise _missing(scope_name, key)
    audit.record(Action.SECRET_DELETE, ObjectKind.SECRET, f"{scope_name}/{key}", user=user)


def list_secrets(user: User, scope_name: str) -> list[Secret]:
    """The scope's keys with their last change, without values."""
    scope = find_scope(user, scope_name, ScopePermission.READ)
    return list(scope.secrets.select_related("changed_by").defer("encrypted"))


def refuse_to_show(user: User, scope_name: str, key: str) -> NoReturn:
    """Refuse to give a value back: nobody sees one again once it is put.

    Raises:
        ResourceDoesNotExist: There is no such key, or `user` may not see the scope.
        PermissionDenied: Otherwise, always; the attempt is recorded.
    """
    scope = find_scope(user, scope_name, ScopePermission.READ)
    if not scope.secrets.filter(key=key).exists():
        raise _missing(scope_name, key)
    name = f"{scope_name}/{key}"
    audit.record(Action.SECRET_READ, ObjectKind.SECRET, name, user=user, outcome=Outcome.DENIED)
    raise PermissionDenied(
        "The value of a secret is never shown again once it is put. Use it in an endpoint: give "
        f"an environment variable the value {{{{secrets/{name}}}}}."
    )


def _missing(scope_name: str, key: str) -> ResourceDoesNotExist:
    return ResourceDoesNotExist(f"Secret scope “{scope_name}” has no key “{key[:128]}”.")


@transaction.atomic
def reencrypt() -> int:
    """Encrypt every value anew with the first configured key; gives how many.

    Raises:
        encryption.CannotDecrypt: A value's key is not configured any more; nothing is changed.
    """
    secrets = list(Secret.objects.select_for_update(of=("self",)).select_related("scope"))
    for secret in secrets:
        value = encryption.decrypt(secret.scope.name, secret.key, secret.encrypted)
        secret.encrypted = encryption.encrypt(secret.scope.name, secret.key, value)
    Secret.objects.bulk_update(secrets, ["encrypted"], batch_size=100)
    return len(secrets)
