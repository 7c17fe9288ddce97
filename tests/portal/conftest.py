"""For tests of the portal: a password hasher that costs nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings


@pytest.fixture(autouse=True)
def quick_passwords() -> Iterator[None]:
    """Hashing each user's password for real would take most of the run."""
    quick = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with override_settings(PASSWORD_HASHERS=quick):
        yield
