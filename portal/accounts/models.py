"""Users and their personal access tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone
from django.utils.functional import cached_property

ADMINS = "admins"
"""Members may turn previews on and off and manage every object."""
USERS = "users"
"""Everybody."""


class User(AbstractUser):
    """A person or a program with an account."""

    @cached_property
    def group_names(self) -> frozenset[str]:
        """The user's groups; everybody is in `users`."""
        return frozenset(self.groups.values_list("name", flat=True)) | {USERS}

    @property
    def is_workspace_admin(self) -> bool:
        """Whether the user administers the workspace."""
        return self.is_superuser or ADMINS in self.group_names


class TokenQuerySet(models.QuerySet["PersonalAccessToken"]):
    def usable(self) -> TokenQuerySet:
        """Tokens that are neither revoked nor expired, of users that may log in."""
        return self.filter(
            models.Q(expires_at=None) | models.Q(expires_at__gt=timezone.now()),
            revoked_at=None,
            user__is_active=True,
        )


class PersonalAccessToken(models.Model):
    """A token; only its SHA-256 is kept (the value has 256 random bits, so no salt is needed)."""

    public_id = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    comment = models.CharField(max_length=256, blank=True)
    sha256 = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    if TYPE_CHECKING:
        user_id: int

    objects = TokenQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.user} {self.public_id}"


class FailedLogin(models.Model):
    """A login that was refused; too many of them make the next one wait."""

    username = models.CharField(max_length=150)
    address = models.CharField(max_length=64)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            # The question before each login: how many failed lately?
            models.Index(fields=["address", "username", "at"], name="failed_logins_lately")
        ]

    def __str__(self) -> str:
        return f"{self.username} from {self.address}"
