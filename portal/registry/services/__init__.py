"""What people, clients and tasks do with models, versions, files and environments."""

from __future__ import annotations

from portal.registry.services.access import (
    Readers,
    forget_group,
    may_read_model,
    may_write_model,
    may_write_version,
    readers_of,
    require_write,
    set_readers,
)
from portal.registry.services.finalizing import finalize_version
from portal.registry.services.models import (
    create_model,
    create_version,
    delete_alias,
    delete_model,
    delete_model_tag,
    delete_version,
    delete_version_tag,
    find_model,
    find_version,
    find_version_among,
    find_version_by_alias,
    set_alias,
    set_model_tag,
    set_version_tag,
    update_model,
    update_version,
    writable_version,
)
from portal.registry.services.preparing import Preparation, build, build_log, ensure_prepared
from portal.registry.services.reconciling import reconcile
from portal.registry.services.staging import is_staged, move_express, request_staging, stage

__all__ = [
    "Preparation",
    "Readers",
    "build",
    "build_log",
    "create_model",
    "create_version",
    "delete_alias",
    "delete_model",
    "delete_model_tag",
    "delete_version",
    "delete_version_tag",
    "ensure_prepared",
    "finalize_version",
    "find_model",
    "find_version",
    "find_version_among",
    "find_version_by_alias",
    "forget_group",
    "is_staged",
    "may_read_model",
    "may_write_model",
    "may_write_version",
    "move_express",
    "readers_of",
    "reconcile",
    "request_staging",
    "require_write",
    "set_alias",
    "set_model_tag",
    "set_readers",
    "set_version_tag",
    "stage",
    "update_model",
    "update_version",
    "writable_version",
]
