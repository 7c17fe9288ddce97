"""Fixtures for every test: one real Valkey for the run, emptied for each test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from hypothesis import settings

from tests.support.environment import DATA_DIR
from tests.support.stack import stack
from tests.support.valkey import Valkey

__all__ = ["stack"]

# `--hypothesis-profile=long`: tests that take their number of cases from the profile run for long.
settings.register_profile("default", max_examples=100)
settings.register_profile("long", max_examples=1000, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for what takes too long for every run."""
    parser.addoption(
        "--all-environments",
        action="store_true",
        help="try models in environments of every Python that this machine has",
    )


@pytest.fixture(scope="session", autouse=True)
def valkey_server() -> Iterator[Valkey]:
    """The run's Valkey."""
    server = Valkey(DATA_DIR / "valkey.sock")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def valkey(valkey_server: Valkey) -> Iterator[redis.Redis]:
    """A client of the run's Valkey, emptied."""
    client = redis.Redis.from_url(valkey_server.url, decode_responses=True)
    client.flushall()
    yield client
    client.close()
