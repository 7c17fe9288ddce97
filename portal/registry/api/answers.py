"""Models and versions as the clients read them: `version` is a text, times are milliseconds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from portal.registry.models import ModelVersion, RegisteredModel


def milliseconds(when: datetime) -> int:
    return int(when.timestamp() * 1000)


def model_answer(model: RegisteredModel) -> dict[str, Any]:
    """A registered model (`RM`); prefetch `tags` and `aliases__model_version` for many."""
    return {
        "name": model.name,
        "creation_timestamp": milliseconds(model.created_at),
        "last_updated_timestamp": milliseconds(model.updated_at),
        "user_id": model.owner.username,
        "description": model.description,
        "aliases": [
            {"alias": alias.alias, "version": str(alias.model_version.version)}
            for alias in model.aliases.all()
        ],
        "tags": [{"key": tag.key, "value": tag.value} for tag in model.tags.all()],
    }


def version_answer(version: ModelVersion) -> dict[str, Any]:
    """A model version (`MV`); prefetch `tags` and `aliases` for many."""
    number = str(version.version)
    return {
        "name": version.model.name,
        "version": number,
        "creation_timestamp": milliseconds(version.created_at),
        "last_updated_timestamp": milliseconds(version.updated_at),
        "user_id": version.creator.username,
        "description": version.description,
        "source": version.source,
        "run_id": version.run_id,
        "status": version.status,
        "status_message": version.status_message,
        "storage_location": storage_location(version),
        "aliases": [{"alias": a.alias, "version": number} for a in version.aliases.all()],
        "tags": [{"key": tag.key, "value": tag.value} for tag in version.tags.all()],
        "model_id": version.logged_model_id,
    }


def storage_location(version: ModelVersion) -> str:
    """Where the Files API has the version's files."""
    return f"/Models/{version.model.name.replace('.', '/')}/{version.version}"
