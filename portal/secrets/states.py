"""What may be done with a scope, from least to most."""

from __future__ import annotations

from django.db.models import TextChoices


class ScopePermission(TextChoices):
    READ = "READ", "Read"
    WRITE = "WRITE", "Write"
    MANAGE = "MANAGE", "Manage"


PERMISSION_RANK: dict[ScopePermission, int] = {
    ScopePermission.READ: 1,
    ScopePermission.WRITE: 2,
    ScopePermission.MANAGE: 3,
}
"""Each permission includes those below it."""

PERMISSION_MEANING: dict[ScopePermission, str] = {
    ScopePermission.READ: "list the keys, and use them in one's own endpoints",
    ScopePermission.WRITE: "also add, replace and delete keys",
    ScopePermission.MANAGE: "also give permissions and delete the scope",
}
