"""The OpenAPI document describes every route and nothing else; its page shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.regex_helper import normalize
from drf_spectacular.drainage import GENERATOR_STATS
from openapi_spec_validator import validate

from portal.schema.calls import OUTSIDE
from portal.schema.document import _document, document
from tests.support.factories import Cast, UserFactory, make_cast

pytestmark = pytest.mark.django_db

BEFORE_DJANGO = {
    ("GET", "/.well-known/databricks-config"),
    ("PUT", "/api/2.0/fs/files/{path}"),
    ("GET", "/api/2.0/fs/files/{path}"),
    ("HEAD", "/api/2.0/fs/files/{path}"),
    ("PUT", "/api/2.0/fs/transfer/{link}"),
    ("GET", "/api/2.0/fs/transfer/{link}"),
    ("HEAD", "/api/2.0/fs/transfer/{link}"),
    ("POST", "/serving-endpoints/{name}/invocations"),
    ("POST", "/serving-endpoints/{name}/served-models/{entity}/invocations"),
}
"""What ASGI applications of our own, or a plain view, answer; the rest are views of DRF's."""


@pytest.fixture
def cast() -> Cast:
    return make_cast()


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document("http://host")["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def routes(
    patterns: list[URLPattern | URLResolver] | None = None, prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Each method and path that a view of DRF's answers."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        regex = prefix + pattern.pattern.regex.pattern.lstrip("^").replace("\\Z", "").rstrip("$")
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, regex)
            continue
        view = getattr(pattern.callback, "view_class", getattr(pattern.callback, "cls", None))
        if view is None or not hasattr(view, "get_authenticators"):
            continue
        for template, _ in normalize(regex)[:1]:
            path = "/" + template.replace("%(", "{").replace(")s", "}").rstrip("/")
            for method in ("get", "put", "post", "patch", "delete", "head"):
                if hasattr(view, method):
                    yield method.upper(), path


def test_every_route_is_described_and_nothing_else_is() -> None:
    described = {(method, path) for method, path, _ in operations()}

    assert described - BEFORE_DJANGO == set(routes())
    assert described >= BEFORE_DJANGO
    assert {path for _, path in BEFORE_DJANGO} == OUTSIDE.keys()


def test_the_document_is_valid_and_nothing_in_it_is_guessed() -> None:
    _document.cache_clear()

    validate(document("http://host"))

    assert not GENERATOR_STATS


def test_every_call_says_what_it_answers_and_how_it_fails() -> None:
    for method, path, operation in operations():
        answers = operation["responses"]
        assert operation["summary"], (method, path)
        is_refused = path == "/api/2.0/secrets/get"  # to everybody
        assert is_refused or any(status < "300" for status in answers), (method, path)
        assert "400" in answers, (method, path)
        assert ("401" in answers) == ({} not in operation["security"]) or method == "PUT"
        for status, answer in answers.items():
            kinds = answer.get("content", {})
            if status >= "400" and method != "HEAD" and "application/xml" not in kinds:
                reference = kinds["application/json"]["schema"]["$ref"]
                assert reference == "#/components/schemas/Error", (method, path, status)


def test_names_of_calls_are_unique() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]

    assert len(names) == len(set(names))


def test_the_document_is_for_tokens_and_for_people(client: Client, cast: Cast) -> None:
    assert client.get("/api/schema").status_code == 401
    assert client.get("/api/schema", headers=cast.viewer.headers).status_code == 200

    client.force_login(cast.viewer.user)
    answer = client.get("/api/schema")

    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/json"
    assert answer.json()["servers"] == [{"url": "http://testserver"}]


def test_the_reference_shows_every_call(client: Client) -> None:
    client.force_login(UserFactory())

    page = client.get("/settings/api/").content.decode()

    for method, path, operation in operations():
        assert f'id="{operation["operationId"]}"' in page, (method, path)
    assert "$DATABRICKS_TOKEN" in page
    assert "http://testserver/serving-endpoints/NAME/invocations" in page
    assert "style=" not in page


def test_the_reference_is_linked_from_the_settings(client: Client) -> None:
    client.force_login(UserFactory())

    assert 'href="/settings/api/"' in client.get("/settings/").content.decode()


def test_strangers_must_log_in_to_read_the_reference(client: Client) -> None:
    assert client.get("/settings/api/").status_code == 302
