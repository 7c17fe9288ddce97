"""The Celery app. Start a worker with `celery -A portal worker`."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

app = Celery("shoal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["portal.accounts", "portal.audit", "portal.registry", "portal.endpoints"])
