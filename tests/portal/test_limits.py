"""Rate limits and quotas: what is accepted, published, shown and refused."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from portal.endpoints.models import Endpoint, Operation
from portal.registry.models import ModelVersion
from serving import bus
from serving.spec import LimitKey, RateLimit, Route, from_json
from tests.support.factories import Cast, ModelVersionFactory, Person, live_endpoint, make_cast

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

BASE = "/api/2.0/serving-endpoints"


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def endpoint(cast: Cast) -> Endpoint:
    found = live_endpoint(creator=cast.manager.user, endpoint_name="detector")
    return cast.share(found) if found.creator_id != cast.manager.user.pk else found


@pytest.fixture
def version() -> ModelVersion:
    return ModelVersionFactory(staged=True, model__name="main.default.detector")


def call(person: Person, method: str, path: str, body: Any = None) -> tuple[int, Any, Any]:
    answer = Client().generic(
        method, path, json.dumps(body or {}), "application/json", headers=person.headers
    )
    return answer.status_code, answer.json(), answer.headers


def limit(calls: int, key: str = "endpoint", **more: Any) -> dict[str, Any]:
    return {"key": key, "calls": calls, "renewal_period": "minute", **more}


# ---------------------------------------------------------------- rate limits


def test_limits_of_both_calls_are_published(
    cast: Cast,
    endpoint: Endpoint,
    valkey: redis.Redis,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        call(cast.manager, "PUT", f"{BASE}/detector/rate-limits", {"rate_limits": [limit(9)]})
        body = {"rate_limits": [limit(5, "user"), limit(7, "user_group", principal="users")]}
        status, answer, _ = call(cast.manager, "PUT", f"{BASE}/detector/ai-gateway", body)

    assert (status, answer) == (200, body)
    published = valkey.hget(bus.ROUTES, "detector")
    assert isinstance(published, str)
    assert from_json(Route, published).rate_limits == (
        RateLimit(key=LimitKey.USER, calls=5),
        RateLimit(key=LimitKey.USER_GROUP, calls=7, principal="users"),
        RateLimit(key=LimitKey.ENDPOINT, calls=9),
    )


def test_putting_the_ai_gateway_replaces_all_of_it(cast: Cast, endpoint: Endpoint) -> None:
    path = f"{BASE}/detector/ai-gateway"
    first = {"rate_limits": [limit(5)], "usage_tracking_config": {"enabled": True}}
    call(cast.manager, "PUT", path, first)

    call(cast.manager, "PUT", path, {"guardrails": {"input": {}}})
    assert call(cast.manager, "GET", f"{BASE}/detector")[1]["ai_gateway"] == {
        "guardrails": {"input": {}}
    }

    assert call(cast.manager, "PUT", path, {})[:2] == (200, {})
    assert call(cast.manager, "GET", f"{BASE}/detector")[1]["ai_gateway"] == {}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (limit(-1), "calls"),
        (limit(10**12), "calls"),
        ({"key": "user", "renewal_period": "minute"}, "calls"),
        ({"key": "user", "tokens": 5, "renewal_period": "minute"}, "tokens"),
        (limit(5) | {"tokens": 5}, "tokens"),
        (limit(5, "nobody"), "key"),
        (limit(5, "user_group"), "principal"),
        (limit(5, "user_group", principal="no such group"), "principal"),
        (limit(5, "user", principal="nobody"), "principal"),
        (limit(5, "service_principal"), "principal"),
        (limit(5, "endpoint", principal="manager"), "principal"),
        (limit(5) | {"renewal_period": "hour"}, "renewal_period"),
        ({"calls": 5}, "renewal_period"),
    ],
)
@pytest.mark.parametrize("call_name", ["rate-limits", "ai-gateway"])
def test_a_wrong_limit_is_refused_at_its_field(
    cast: Cast, endpoint: Endpoint, wrong: dict[str, Any], field: str, call_name: str
) -> None:
    body = {"rate_limits": [limit(3), wrong]}

    status, answer, _ = call(cast.manager, "PUT", f"{BASE}/detector/{call_name}", body)

    assert (status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert f"rate_limits[1].{field}" in [problem["field"] for problem in answer["details"]]
    endpoint.refresh_from_db()
    assert (endpoint.rate_limits, endpoint.ai_gateway) == ([], {})


def test_a_wrong_limit_is_refused_at_creation_too(cast: Cast, version: ModelVersion) -> None:
    body = creation(version) | {"ai_gateway": {"rate_limits": [limit(1, "user_group")]}}

    status, answer, _ = call(cast.manager, "POST", BASE, body)

    assert status == 400
    assert answer["details"][0]["field"] == "ai_gateway.rate_limits[0].principal"


def test_the_same_limit_twice_is_refused(cast: Cast, endpoint: Endpoint) -> None:
    body = {"rate_limits": [limit(3, "user"), limit(5, "user")]}

    assert call(cast.manager, "PUT", f"{BASE}/detector/ai-gateway", body)[0] == 400


def test_limits_are_shown_and_changed_on_the_settings_tab(cast: Cast, endpoint: Endpoint) -> None:
    named = limit(9, "user", principal="querier")
    call(
        *(cast.manager, "PUT", f"{BASE}/detector/ai-gateway"),
        {"rate_limits": [limit(5), named], "usage_tracking_config": {"enabled": True}},
    )
    browser = Client()
    browser.force_login(cast.manager.user)

    answer = browser.post("/endpoints/detector/limits/", {"endpoint": "", "user": "30"})

    assert (answer.status_code, answer["Location"]) == (302, "/endpoints/detector/settings/")
    endpoint.refresh_from_db()
    assert endpoint.ai_gateway == {
        "usage_tracking_config": {"enabled": True},
        "rate_limits": [limit(30, "user"), named],
    }
    page = browser.get("/endpoints/detector/settings/").content.decode()
    assert '<th scope="row">Each user</th><td class="number">30</td>' in page
    assert '<th scope="row">querier</th><td class="number">9</td>' in page


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "9" * 30, "٣"])
def test_what_is_no_number_changes_nothing(cast: Cast, endpoint: Endpoint, text: str) -> None:
    browser = Client()
    browser.force_login(cast.manager.user)

    page = browser.post("/endpoints/detector/limits/", {"user": text}, follow=True)

    assert "is not a number of calls" in page.content.decode()
    endpoint.refresh_from_db()
    assert endpoint.ai_gateway == {}


def test_notifications_are_shown(cast: Cast, endpoint: Endpoint) -> None:
    body = {"email_notifications": {"on_update_failure": ["ops@example.com"]}}
    call(cast.manager, "PATCH", f"{BASE}/detector/notifications", body)
    browser = Client()
    browser.force_login(cast.manager.user)

    assert "ops@example.com" in browser.get("/endpoints/detector/settings/").content.decode()


# ---------------------------------------------------------------- quotas


def creation(version: ModelVersion, name: str = "second", **entity: Any) -> dict[str, Any]:
    served = {
        "entity_name": version.model.name,
        "entity_version": str(version.version),
        "min_provisioned_concurrency": 8,
        "max_provisioned_concurrency": 16,
        **entity,
    }
    return {"name": name, "config": {"served_entities": [served]}}


def test_the_workspaces_concurrency_is_bounded(
    cast: Cast, endpoint: Endpoint, version: ModelVersion, settings: Settings
) -> None:
    held = sum(e.max_provisioned_concurrency for e in active_entities(endpoint))
    settings.MAX_WORKSPACE_CONCURRENCY = held + 12

    status, answer, _ = call(cast.manager, "POST", BASE, creation(version))

    assert (status, answer["error_code"]) == (400, "INVALID_STATE")
    assert answer["message"].startswith("Workspace exceeded provisioned concurrency quota")
    assert f"16 asked for, {held} held by other endpoints, {held + 12} allowed" in answer["message"]
    body = creation(version, max_provisioned_concurrency=12)
    assert call(cast.manager, "POST", BASE, body)[0] == 200


def test_a_stopped_endpoint_frees_its_concurrency_and_needs_it_again_to_start(
    cast: Cast, endpoint: Endpoint, version: ModelVersion, settings: Settings
) -> None:
    held = sum(e.max_provisioned_concurrency for e in active_entities(endpoint))
    settings.MAX_WORKSPACE_CONCURRENCY = max(held, 16)
    assert call(cast.manager, "POST", BASE, creation(version))[0] == 400

    assert call(cast.manager, "POST", f"{BASE}/detector/stop")[0] == 200
    assert call(cast.manager, "POST", BASE, creation(version))[0] == 200
    status, answer, _ = call(cast.manager, "POST", f"{BASE}/detector/start")

    assert status == 400
    assert "16 held by other endpoints" in answer["message"]


def active_entities(endpoint: Endpoint) -> list[Any]:
    return list(endpoint.active_config.entities.all()) if endpoint.active_config else []


def test_an_update_counts_what_it_replaces_as_free(
    cast: Cast, endpoint: Endpoint, version: ModelVersion, settings: Settings
) -> None:
    settings.MAX_WORKSPACE_CONCURRENCY = 16
    config = creation(version)["config"]

    assert call(cast.manager, "PUT", f"{BASE}/detector/config", config)[0] == 200


def test_endpoints_are_bounded(
    cast: Cast, endpoint: Endpoint, version: ModelVersion, settings: Settings
) -> None:
    settings.MAX_ENDPOINTS = 1

    status, answer, _ = call(cast.manager, "POST", BASE, creation(version))

    assert (status, answer["error_code"]) == (400, "INVALID_STATE")
    assert "has 1 endpoints; at most 1 are allowed" in answer["message"]
    call(cast.manager, "DELETE", f"{BASE}/detector")
    assert call(cast.manager, "POST", BASE, creation(version))[0] == 200


def test_creations_and_updates_are_bounded_in_a_while(
    cast: Cast, endpoint: Endpoint, version: ModelVersion, settings: Settings
) -> None:
    settings.MAX_OPERATIONS = 2
    assert call(cast.manager, "POST", BASE, creation(version))[0] == 200
    assert call(cast.manager, "POST", BASE, creation(version, "not a name!"))[0] == 400
    config = creation(version)["config"]
    assert call(cast.manager, "PUT", f"{BASE}/detector/config", config)[0] == 200

    status, answer, headers = call(cast.manager, "POST", BASE, creation(version, "third"))

    assert (status, answer["error_code"]) == (429, "REQUEST_LIMIT_EXCEEDED")
    assert 1 <= int(headers["Retry-After"]) <= 300
    Operation.objects.update(at=timezone.now() - timedelta(minutes=5, seconds=1))
    assert call(cast.manager, "POST", BASE, creation(version, "third"))[0] == 200
    assert Operation.objects.count() == 1
