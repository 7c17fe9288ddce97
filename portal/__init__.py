"""Shoal's control plane: what people and clients see, and what is remembered."""

from __future__ import annotations

from portal.celery import app as celery_app

__all__ = ["celery_app"]
