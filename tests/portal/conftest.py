"""For tests of the portal: a password hasher that costs nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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


@pytest.fixture(scope="session")
def live_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePortal]:
    """A web server in a process of its own, for what streams; workers are started when asked."""
    portal = LivePortal(tmp_path_factory.mktemp("portal"))
    try:
        portal.start()
        yield portal
    finally:
        portal.stop()
