"""Features that workspace admins turn on or off."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Preview(models.Model):
    """One feature; a row exists once somebody changed it. What exists at all is in `states.py`."""

    name = models.CharField(max_length=64, primary_key=True)
    enabled = models.BooleanField(default=False)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.name} {'on' if self.enabled else 'off'}"
