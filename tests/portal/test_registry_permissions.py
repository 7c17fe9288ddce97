"""Who may write in the registry, and what odd calls are answered."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.support.factories import AdminFactory, UserFactory
from tests.support.registry import CATALOG, NAME, Api

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> Api:
    return Api(UserFactory())


@pytest.fixture
def other() -> Api:
    return Api(UserFactory())


@pytest.fixture
def admin() -> Api:
    return Api(AdminFactory())


@pytest.fixture
def model(owner: Api) -> str:
    owner.ok("POST", "registered-models/create", name=NAME)
    return NAME


@pytest.fixture
def version(owner: Api, model: str) -> str:
    body = owner.ok("POST", "model-versions/create", name=model, source="/home/me/model")
    return str(body["model_version"]["version"])


WRITES = [
    ("PATCH", "registered-models/update", {"description": "x"}),
    ("PATCH", "registered-models/update", {"new_name": "main.default.stolen"}),
    ("POST", "registered-models/set-tag", {"key": "a", "value": "b"}),
    ("DELETE", "registered-models/delete-tag", {"key": "a"}),
    ("POST", "registered-models/alias", {"alias": "champion", "version": "1"}),
    ("DELETE", "registered-models/alias", {"alias": "champion"}),
    ("POST", "model-versions/create", {"source": "s"}),
    ("PATCH", "model-versions/update", {"version": "1", "description": "x"}),
    ("POST", "model-versions/set-tag", {"version": "1", "key": "a", "value": "b"}),
    ("DELETE", "model-versions/delete-tag", {"version": "1", "key": "a"}),
    ("POST", "model-versions/finalize", {"version": "1"}),
    (
        "POST",
        "model-versions/generate-temporary-credentials",
        {"version": "1", "operation": "MODEL_VERSION_OPERATION_READ_WRITE"},
    ),
    ("DELETE", "model-versions/delete", {"version": "1"}),
    ("DELETE", "registered-models/delete", {}),
]


@pytest.mark.parametrize(("method", "path", "arguments"), WRITES)
def test_only_the_owner_and_admins_write(
    owner: Api,
    other: Api,
    admin: Api,
    version: str,
    method: str,
    path: str,
    arguments: dict[str, str],
) -> None:
    found = other.refusal(method, path, name=NAME, **arguments)
    assert found == (403, "PERMISSION_DENIED")

    status, body = admin(method, path, name=NAME, **arguments)
    assert status == 200 or "MLmodel" in body["message"], body


def test_everybody_reads(other: Api, version: str) -> None:
    other.ok("GET", "registered-models/get", name=NAME)
    other.ok("GET", "model-versions/get", name=NAME, version=version)
    assert other.ok("GET", "registered-models/search")["registered_models"]
    assert other.ok("GET", "model-versions/search")["model_versions"]


def test_nobody_reads_without_a_token(version: str) -> None:
    for path in ("registered-models/search", "model-versions/search"):
        response = Client().get(f"{CATALOG}/{path}")
        assert response.status_code == 401
        assert response.json()["error_code"] == "UNAUTHENTICATED"


def test_a_wrong_method_is_a_404(owner: Api) -> None:
    assert owner.refusal("GET", "registered-models/create") == (404, "ENDPOINT_NOT_FOUND")
    assert owner.refusal("POST", "registered-models/get") == (404, "ENDPOINT_NOT_FOUND")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"name": None},
        {"name": 3.5, "tags": "x"},
        {"name": ["a"]},
        {"name": NAME, "tags": [1]},
        {"name": NAME, "tags": [{"key": ""}]},
        {"name": NAME, "tags": [{"value": "x"}]},
    ],
)
def test_wrong_types_are_a_400(owner: Api, arguments: dict[str, Any]) -> None:
    assert owner.refusal("POST", "registered-models/create", **arguments)[0] == 400


def test_the_probe_is_open_and_needs_no_database(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        response = Client().get("/.well-known/databricks-config")

    body = response.json()
    assert response.status_code == 200
    assert body["oidc_endpoint"] == ""
    assert body["workspace_id"].isdigit()
