"""What people and clients do with registered models and their versions."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet

from portal.accounts.models import User
from portal.audit import services as audit
from portal.audit.services import Action, ObjectKind, Outcome
from portal.registry.models import (
    BULKY,
    ModelAlias,
    ModelVersion,
    ModelVersionTag,
    RegisteredModel,
    RegisteredModelTag,
)
from portal.registry.services.access import may_write_version, require_write, unknown_model
from portal.registry.services.naming import checked_alias, checked_model_name, checked_version
from portal.rest import (
    PermissionDenied,
    ResourceAlreadyExists,
    ResourceDoesNotExist,
)

log = logging.getLogger(__name__)

# ---------------------------------------------------------------- finding


def find_model(user: User, name: str) -> RegisteredModel:
    """The registered model of this name.

    Raises:
        InvalidParameterValue: The name has not three levels.
        ResourceDoesNotExist: There is none, or none that `user` may read.
    """
    return _find_model(RegisteredModel.objects.readable_by(user), name)


def find_version(user: User, name: str, version: str) -> ModelVersion:
    """The model version for "3" or "@alias".

    Raises:
        InvalidParameterValue: Name or version cannot be one.
        ResourceDoesNotExist: There is none, or none that `user` may read.
    """
    return find_version_among(RegisteredModel.objects.readable_by(user), name, version)


def find_version_among(models: QuerySet[RegisteredModel], name: str, version: str) -> ModelVersion:
    """As `find_version`, among these models."""
    model = _find_model(models, name)
    if version.startswith("@"):
        return _version_by_alias(model, version[1:])
    number = checked_version(version)
    found = _whole_versions().filter(model=model, version=number).first()
    if found is None:
        raise ResourceDoesNotExist(f"The model {name} has no version {number}.")
    return found


def find_version_by_alias(user: User, name: str, alias: str) -> ModelVersion:
    """The model version that an alias points to.

    Raises:
        ResourceDoesNotExist: There is no such alias, or no such model that `user` may read.
    """
    return _version_by_alias(find_model(user, name), alias)


def _find_model(models: QuerySet[RegisteredModel], name: str) -> RegisteredModel:
    checked_model_name(name)
    found = models.select_related("owner").filter(name=name).first()
    if found is None:
        raise unknown_model(name)
    return found


def _version_by_alias(model: RegisteredModel, alias: str) -> ModelVersion:
    checked_alias(alias)
    found = _whole_versions().filter(model=model, aliases__alias=alias).first()
    if found is None:
        raise ResourceDoesNotExist(f"The model {model.name} has no alias {alias}.")
    return found


def _whole_versions() -> QuerySet[ModelVersion]:
    return ModelVersion.objects.select_related("model__owner", "creator", "environment").defer(
        *BULKY
    )


# ---------------------------------------------------------------- registered models


@transaction.atomic
def create_model(
    user: User, name: str, *, description: str = "", tags: Mapping[str, str] | None = None
) -> RegisteredModel:
    """Register a new model that belongs to `user`.

    Raises:
        InvalidParameterValue: The name has not three levels.
        ResourceAlreadyExists: There is one of this name.
    """
    checked_model_name(name)
    try:
        with transaction.atomic():
            model = RegisteredModel.objects.create(name=name, description=description, owner=user)
    except IntegrityError:
        raise ResourceAlreadyExists(f"The registered model {name} already exists.") from None
    for key, value in (tags or {}).items():
        RegisteredModelTag.objects.create(model=model, key=key, value=value)
    discard(_folder_of(name))
    audit.record(Action.MODEL_CREATE, ObjectKind.MODEL, name, user=user)
    log.info("%s registered the model %s", user, name)
    return model


@transaction.atomic
def update_model(
    user: User,
    name: str,
    *,
    description: str | None = None,
    new_name: str | None = None,
) -> RegisteredModel:
    """Change the description, or the name with the place of the files.

    Raises:
        ResourceAlreadyExists: The new name is taken.
    """
    model = _locked_model(name)
    require_write(user, model)
    if description is not None:
        model.description = description
        model.save(update_fields=["description", "updated_at"])
    audit.record(
        Action.MODEL_UPDATE,
        ObjectKind.MODEL,
        name,
        user=user,
        description_changed=description is not None,
        new_name=new_name or name,
    )
    if new_name is not None and new_name != name:
        _rename(model, checked_model_name(new_name))
        log.info("%s renamed the model %s to %s", user, name, new_name)
    return model


def _rename(model: RegisteredModel, new_name: str) -> None:
    old, new = _folder_of(model.name), _folder_of(new_name)
    model.name = new_name
    try:
        with transaction.atomic():
            model.save(update_fields=["name", "updated_at"])
    except IntegrityError:
        raise ResourceAlreadyExists(f"The registered model {new_name} already exists.") from None
    discard(new)
    if old.exists():
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)


@transaction.atomic
def delete_model(user: User, name: str) -> None:
    """Delete a model with its versions and their files; replicas that run keep their copies."""
    model = _locked_model(name)
    require_write(user, model)
    model.delete()
    transaction.on_commit(lambda: _discard_files_of(name))
    audit.record(Action.MODEL_DELETE, ObjectKind.MODEL, name, user=user)
    log.info("%s deleted the model %s", user, name)


@transaction.atomic
def set_model_tag(user: User, name: str, key: str, value: str) -> None:
    """Give a model a tag, or a tag another value."""
    model = find_model(user, name)
    require_write(user, model)
    RegisteredModelTag.objects.update_or_create(model=model, key=key, defaults={"value": value})
    audit.record(Action.MODEL_TAG, ObjectKind.MODEL, name, user=user, tag=key, is_set=True)


@transaction.atomic
def delete_model_tag(user: User, name: str, key: str) -> None:
    """Take a tag from a model; it may be gone already."""
    model = find_model(user, name)
    require_write(user, model)
    if RegisteredModelTag.objects.filter(model=model, key=key).delete()[0]:
        audit.record(Action.MODEL_TAG, ObjectKind.MODEL, name, user=user, tag=key, is_set=False)


@transaction.atomic
def set_alias(user: User, name: str, alias: str, version: str) -> None:
    """Let an alias point to a version, also one that pointed elsewhere."""
    model = find_model(user, name)
    require_write(user, model)
    ModelAlias.objects.update_or_create(
        model=model,
        alias=checked_alias(alias),
        defaults={"model_version": find_version(user, name, version)},
    )
    audit.record(
        Action.ALIAS_SET, ObjectKind.MODEL, name, user=user, alias=alias, version=str(version)
    )


@transaction.atomic
def delete_alias(user: User, name: str, alias: str) -> None:
    """Remove an alias; it may be gone already."""
    model = find_model(user, name)
    require_write(user, model)
    if ModelAlias.objects.filter(model=model, alias=alias).delete()[0]:
        audit.record(Action.ALIAS_DELETE, ObjectKind.MODEL, name, user=user, alias=alias)


# ---------------------------------------------------------------- model versions


@transaction.atomic
def create_version(
    user: User,
    name: str,
    *,
    source: str = "",
    run_id: str = "",
    description: str = "",
    logged_model_id: str = "",
    tags: Mapping[str, str] | None = None,
) -> ModelVersion:
    """A new version that waits for its files; its number was never given before."""
    model = _locked_model(name)
    require_write(user, model)
    RegisteredModel.objects.filter(pk=model.pk).update(last_version=F("last_version") + 1)
    model.refresh_from_db(fields=["last_version"])
    version = ModelVersion.objects.create(
        model=model,
        version=model.last_version,
        creator=user,
        source=source,
        run_id=run_id,
        description=description,
        logged_model_id=logged_model_id,
    )
    for key, value in (tags or {}).items():
        ModelVersionTag.objects.create(model_version=version, key=key, value=value)
    record_version(Action.VERSION_CREATE, version, user)
    log.info("%s created %s", user, version)
    return version


@transaction.atomic
def update_version(user: User, name: str, version: str, *, description: str) -> ModelVersion:
    """Change a version's description."""
    found = writable_version(user, name, version)
    found.description = description
    found.save(update_fields=["description", "updated_at"])
    record_version(Action.VERSION_UPDATE, found, user, changed="description")
    return found


@transaction.atomic
def delete_version(user: User, name: str, version: str) -> None:
    """Delete a version with its files; replicas that run keep their copies."""
    found = writable_version(user, name, version)
    folder = found.files_directory
    label = str(found)
    record_version(Action.VERSION_DELETE, found, user)
    found.delete()
    transaction.on_commit(lambda: discard(folder))
    log.info("%s deleted %s", user, label)


@transaction.atomic
def set_version_tag(user: User, name: str, version: str, key: str, value: str) -> None:
    """Give a version a tag, or a tag another value."""
    found = writable_version(user, name, version)
    ModelVersionTag.objects.update_or_create(
        model_version=found, key=key, defaults={"value": value}
    )
    record_version(Action.VERSION_TAG, found, user, tag=key, is_set=True)


@transaction.atomic
def delete_version_tag(user: User, name: str, version: str, key: str) -> None:
    """Take a tag from a version; it may be gone already."""
    found = writable_version(user, name, version)
    if ModelVersionTag.objects.filter(model_version=found, key=key).delete()[0]:
        record_version(Action.VERSION_TAG, found, user, tag=key, is_set=False)


def record_version(
    action: Action,
    version: ModelVersion,
    user: User,
    *,
    outcome: Outcome = Outcome.DONE,
    **detail: object,
) -> None:
    """Write down an act on a version."""
    name = f"{version.model.name}/{version.version}"
    audit.record(action, ObjectKind.VERSION, name, user=user, outcome=outcome, **detail)


def writable_version(user: User, name: str, version: str) -> ModelVersion:
    """The version, if `user` may change it.

    Raises:
        PermissionDenied: Only its creator, the model's owner and workspace admins may.
    """
    found = find_version(user, name, version)
    if not may_write_version(user, found):
        raise PermissionDenied(
            f"Only the creator of {found} ({found.creator}), the model's owner and workspace "
            "admins may do this."
        )
    return found


# ---------------------------------------------------------------- inside


def _locked_model(name: str) -> RegisteredModel:
    checked_model_name(name)
    found = (
        RegisteredModel.objects.select_for_update(of=("self",))
        .select_related("owner")
        .filter(name=name)
        .first()
    )
    if found is None:
        raise unknown_model(name)
    return found


def _folder_of(name: str) -> Path:
    return Path(settings.FILES_DIR, "Models", *name.split("."))


def _discard_files_of(name: str) -> None:
    """Remove a deleted model's files; one that was made anew meanwhile has removed them itself."""
    if not RegisteredModel.objects.filter(name=name).exists():
        discard(_folder_of(name))


def discard(folder: Path) -> None:
    """Remove a folder of files at once from sight, then from the disk."""
    hidden = Path(settings.UPLOADS_DIR) / f"discarded-{uuid.uuid4().hex}"
    hidden.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.rename(hidden)
    except FileNotFoundError:
        return
    shutil.rmtree(hidden, ignore_errors=True)
