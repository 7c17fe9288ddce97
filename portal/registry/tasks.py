"""Background work of the registry; each task may run twice, late, or after its row is gone."""

from __future__ import annotations

from celery import shared_task

from portal.registry import services


@shared_task(name="registry.stage_version")
def stage_version(version_pk: int) -> None:
    """Unpack and check a version's packed model and environment."""
    services.stage(version_pk)


@shared_task(name="registry.build_environment")
def build_environment(version_pk: int) -> None:
    """Build the environment of a version that brings none (queue "builds")."""
    services.build(version_pk)


@shared_task(name="registry.reconcile", soft_time_limit=600, time_limit=660)
def reconcile() -> None:
    """Mend interrupted stagings, expire uploads, collect what nobody uses."""
    services.reconcile()
