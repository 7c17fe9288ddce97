"""For tests of the portal: passwords that cost nothing to hash, and no test's files in the next."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import override_settings

from tests.support.deployments import preview, replicas
from tests.support.live_portal import LivePortal

__all__ = ["preview", "replicas"]


@pytest.fixture(autouse=True)
def quick_passwords() -> Iterator[None]:
    """Hashing each user's password for real would take most of the run."""
    quick = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with override_settings(PASSWORD_HASHERS=quick):
        yield


@pytest.fixture(autouse=True)
def empty_files() -> Iterator[None]:
    """What a test uploaded goes with its rows of the database."""
    yield
    for folder in (settings.FILES_DIR, settings.UPLOADS_DIR):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def empty_stores() -> Iterator[None]:
    """So do the environments and models that it unpacked."""
    yield
    for folder in (settings.ENVIRONMENTS_DIR, settings.MODELS_DIR):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def live_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePortal]:
    """A web server in a process of its own, for what streams; workers are started when asked."""
    portal = LivePortal(tmp_path_factory.mktemp("portal"))
    try:
        portal.start()
        yield portal
    finally:
        portal.stop()
