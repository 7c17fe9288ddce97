"""Scopes of secrets, their keys, and who may use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models

from portal.secrets.states import ScopePermission

if TYPE_CHECKING:
    from portal.accounts.models import User


class SecretScopeQuerySet(models.QuerySet["SecretScope"]):
    def readable_by(self, user: User) -> SecretScopeQuerySet:
        """Scopes on which `user` has at least READ."""
        if user.is_workspace_admin:
            return self.all()
        granted = ScopeAcl.objects.filter(
            models.Q(user=user) | models.Q(group_name__in=user.group_names)
        )
        return self.filter(pk__in=granted.values("scope"))


class SecretScope(models.Model):
    """A named set of secrets that are shared together. Its name is bound into their encryption."""

    name = models.CharField(max_length=128, unique=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = SecretScopeQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Secret(models.Model):
    """One value, encrypted (see `encryption`); a key's name is bound in as well."""

    scope = models.ForeignKey(SecretScope, on_delete=models.CASCADE, related_name="secrets")
    key = models.CharField(max_length=128)
    encrypted = models.BinaryField()
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ["key"]
        constraints = [models.UniqueConstraint(fields=["scope", "key"], name="one_secret_a_key")]

    def __str__(self) -> str:
        return f"{self.scope}/{self.key}"


class ScopeAcl(models.Model):
    """A permission of a user or of a group (by name); admins manage anyway."""

    scope = models.ForeignKey(SecretScope, on_delete=models.CASCADE, related_name="acls")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+"
    )
    group_name = models.CharField(max_length=150, blank=True)
    permission = models.CharField(max_length=8, choices=ScopePermission.choices)

    if TYPE_CHECKING:
        user_id: int | None

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["scope", "user"],
                condition=models.Q(user__isnull=False),
                name="one_scope_acl_a_user",
            ),
            models.UniqueConstraint(
                fields=["scope", "group_name"],
                condition=models.Q(user__isnull=True),
                name="one_scope_acl_a_group",
            ),
            models.CheckConstraint(
                condition=models.Q(user=None) ^ models.Q(group_name=""), name="scope_acl_principal"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.principal} {self.permission}"

    @property
    def principal(self) -> str:
        """The user's or the group's name."""
        return self.user.username if self.user else self.group_name
