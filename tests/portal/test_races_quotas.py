"""Many callers at once never get more than the workspace's quotas, on either database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connections
from pytest_django import Settings

from portal.accounts.models import User
from portal.endpoints import services
from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.models import Endpoint, Operation
from portal.registry.models import ModelVersion
from portal.rest import InvalidState, RequestLimitExceeded
from tests.support.factories import ModelVersionFactory, UserFactory, live_endpoint

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

AT_ONCE = 8


@pytest.fixture
def version() -> ModelVersion:
    found: ModelVersion = ModelVersionFactory(staged=True)
    return found


@pytest.fixture
def user() -> User:
    found: User = UserFactory()
    return found


def together(act: Callable[[int], object]) -> Counter[type[Exception] | None]:
    """Do it at once in as many threads; how each ended."""
    barrier = Barrier(AT_ONCE)

    def run(number: int) -> type[Exception] | None:
        try:
            barrier.wait(timeout=30)
            act(number)
        except (InvalidState, RequestLimitExceeded) as exc:
            return type(exc)
        finally:
            connections.close_all()
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return Counter(pool.map(run, range(AT_ONCE)))


def create(user: User, version: ModelVersion) -> Callable[[int], object]:
    entity = EntityInput(
        name="main", entity_name=version.model.name, entity_version="1", workload_size="Small"
    )
    return lambda number: services.create_endpoint(
        user, EndpointInput(name=f"raced-{number}", entities=(entity,))
    )


def test_endpoints_are_created_up_to_the_quota(
    settings: Settings, user: User, version: ModelVersion
) -> None:
    settings.MAX_ENDPOINTS = 3

    ended = together(create(user, version))

    assert ended == {None: 3, InvalidState: AT_ONCE - 3}
    assert Endpoint.objects.count() == 3


def test_concurrency_is_given_up_to_the_quota(
    settings: Settings, user: User, version: ModelVersion
) -> None:
    settings.MAX_WORKSPACE_CONCURRENCY = 8

    assert together(create(user, version)) == {None: 2, InvalidState: AT_ONCE - 2}


def test_stopped_endpoints_start_up_to_the_quota(
    settings: Settings, user: User, version: ModelVersion
) -> None:
    endpoints = [live_endpoint(creator=user, model_version=version) for _ in range(AT_ONCE)]
    for endpoint in endpoints:
        services.stop_endpoint(user, endpoint)
    settings.MAX_WORKSPACE_CONCURRENCY = 12

    ended = together(lambda number: services.start_endpoint(user, endpoints[number]))

    assert ended == {None: 3, InvalidState: AT_ONCE - 3}


def test_operations_are_counted_up_to_the_quota(
    settings: Settings, user: User, version: ModelVersion
) -> None:
    settings.MAX_OPERATIONS = 5

    ended = together(create(user, version))

    assert ended == {None: 5, RequestLimitExceeded: AT_ONCE - 5}
    assert Operation.objects.count() == 5
