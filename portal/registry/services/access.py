"""Who reads and who writes registered models, their versions and files.

The owner and workspace admins read, write and share a model. Everybody reads it, unless it is
restricted: then only those two and the users and groups that are listed. For all others a
restricted model is not there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import Group
from django.db import transaction

from portal.accounts.models import ADMINS, USERS, User
from portal.audit import services as audit
from portal.registry.models import ModelReader, ModelVersion, RegisteredModel
from portal.rest import InvalidParameterValue, PermissionDenied, ResourceDoesNotExist

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Who reads a model beside its owner and the admins; everybody, where it is not restricted."""

    is_restricted: bool
    user_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()


def may_read_model(user: User, model: RegisteredModel) -> bool:
    """Whether the model is there for `user`."""
    if not model.is_restricted or may_write_model(user, model):
        return True
    return RegisteredModel.objects.readable_by(user).filter(pk=model.pk).exists()


def may_write_model(user: User, model: RegisteredModel) -> bool:
    """Owners and workspace admins write."""
    return user.pk == model.owner_id or user.is_workspace_admin


def may_write_version(user: User, version: ModelVersion) -> bool:
    """The version's creator, and who may write the model."""
    if may_write_model(user, version.model):
        return True
    return user.pk == version.creator_id and may_read_model(user, version.model)


def unknown_model(name: str) -> ResourceDoesNotExist:
    """The answer for a model that is not there, or not for the caller: the two look the same."""
    return ResourceDoesNotExist(f"There is no registered model {name}.")


def require_write(user: User, model: RegisteredModel) -> None:
    """Refuse who may not write the model.

    Raises:
        ResourceDoesNotExist: They may not even read it.
        PermissionDenied: Only its owner and workspace admins may.
    """
    if may_write_model(user, model):
        return
    if not may_read_model(user, model):
        raise unknown_model(model.name)
    raise PermissionDenied(
        f"Only the owner of {model.name} ({model.owner}) and workspace admins may do this."
    )


def readers_of(model: RegisteredModel) -> Readers:
    """Who reads the model beside its owner and the admins."""
    rows = list(model.readers.select_related("user").order_by("pk"))
    return Readers(
        is_restricted=model.is_restricted,
        user_names=tuple(row.user.username for row in rows if row.user),
        group_names=tuple(row.group_name for row in rows if row.user is None),
    )


@transaction.atomic
def set_readers(user: User, model: RegisteredModel, wanted: Readers) -> None:
    """Let everybody read the model, or only those who are listed; the list is kept either way.

    Raises:
        PermissionDenied: Only its owner and workspace admins may.
        InvalidParameterValue: A user or a group does not exist.
    """
    require_write(user, model)
    users = _existing_users(set(wanted.user_names) - {model.owner.username})
    groups = _existing_groups(set(wanted.group_names) - {ADMINS, USERS})
    model.readers.all().delete()
    ModelReader.objects.bulk_create(
        [
            *(ModelReader(model=model, user=reader) for reader in users),
            *(ModelReader(model=model, group_name=name) for name in groups),
        ]
    )
    model.is_restricted = wanted.is_restricted and USERS not in wanted.group_names
    model.save(update_fields=["is_restricted", "updated_at"])
    audit.record(
        audit.Action.MODEL_PERMISSIONS,
        audit.ObjectKind.MODEL,
        model.name,
        user=user,
        is_restricted=model.is_restricted,
        users=[reader.username for reader in users],
        groups=groups,
    )
    log.info("%s changed who reads %s", user, model)


def forget_group(group_name: str) -> None:
    """Take a group out of every model's readers."""
    ModelReader.objects.filter(user=None, group_name=group_name).delete()


def _existing_users(names: Iterable[str]) -> list[User]:
    wanted = sorted(names)
    found = {user.username: user for user in User.objects.filter(username__in=wanted)}
    for name in wanted:
        if name not in found:
            raise _unknown("user", name)
    return [found[name] for name in wanted]


def _existing_groups(names: Iterable[str]) -> list[str]:
    wanted = sorted(names)
    found = set(Group.objects.filter(name__in=wanted).values_list("name", flat=True))
    for name in wanted:
        if name not in found:
            raise _unknown("group", name)
    return wanted


def _unknown(kind: str, name: str) -> InvalidParameterValue:
    message = f"There is no {kind} “{name[:150]}”."
    details = [{"field": "access_control_list", "message": message}]
    return InvalidParameterValue(message, details=details)
