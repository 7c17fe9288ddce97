"""Who may do what on an endpoint, cell by cell: over the API and on the pages.

The tables below are written out by hand; they are what the product's own table must come to.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from portal.endpoints.models import Endpoint
from portal.endpoints.states import ConfigUpdate, DeploymentState, EntityState
from tests.support.factories import DeploymentFactory, EndpointConfigFactory, ServedEntityFactory
from tests.support.permissions import WHO, Scene, cells, make_scene

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

BASE = "/api/2.0/serving-endpoints"
ONE = f"{BASE}/detector"
ACCESS = "/api/2.0/permissions/serving-endpoints/{id}"
LIMIT = {"calls": 5, "key": "endpoint", "renewal_period": "minute"}
SHARE = {"access_control_list": [{"user_name": "stranger", "permission_level": "CAN_VIEW"}]}

# Columns: admin, creator, manager, querier, viewer, stranger, anonymous.
API_TABLE = """
    see                | 200  200  200  200  200  404  401
    events             | 200  200  200  200  200  404  401
    openapi            | 200  200  200  200  200  404  401
    logs               | 200  200  200  200  200  404  401
    build logs         | 200  200  200  200  200  404  401
    profile            | 200  200  200  200  200  404  401
    metrics            | 200  200  200  200  200  404  401
    permissions        | 200  200  200  200  200  404  401
    permission levels  | 200  200  200  200  200  404  401
    config             | 200  200  200  403  403  404  401
    tags               | 200  200  200  403  403  404  401
    notifications      | 200  200  200  403  403  404  401
    rate limits        | 200  200  200  403  403  404  401
    ai gateway         | 200  200  200  403  403  404  401
    measure again      | 200  200  200  403  403  404  401
    stop               | 200  200  200  403  403  404  401
    start              | 200  200  200  403  403  404  401
    cancel             | 200  200  200  403  403  404  401
    delete             | 200  200  200  403  403  404  401
    set permissions    | 200  200  200  403  403  404  401
    update permissions | 200  200  200  403  403  404  401
"""
API_CALLS: dict[str, tuple[str, str, Any]] = {
    "see": ("GET", ONE, None),
    "events": ("GET", f"{ONE}/events", None),
    "openapi": ("GET", f"{ONE}/openapi", None),
    "logs": ("GET", f"{ONE}/served-models/main/logs", None),
    "build logs": ("GET", f"{ONE}/served-models/main/build-logs", None),
    "profile": ("GET", f"{ONE}/served-models/main/profile", None),
    "measure again": ("POST", f"{ONE}/served-models/main/profile", {}),
    "metrics": ("GET", f"{ONE}/metrics", None),
    "permissions": ("GET", ACCESS, None),
    "permission levels": ("GET", f"{ACCESS}/permissionLevels", None),
    "config": ("PUT", f"{ONE}/config", "the entity that it serves"),
    "tags": ("PATCH", f"{ONE}/tags", {"add_tags": [{"key": "team"}]}),
    "notifications": (
        "PATCH",
        f"{ONE}/notifications",
        {"email_notifications": {"on_update_failure": ["me@example.com"]}},
    ),
    "rate limits": ("PUT", f"{ONE}/rate-limits", {"rate_limits": [LIMIT]}),
    "ai gateway": ("PUT", f"{ONE}/ai-gateway", {"rate_limits": [LIMIT]}),
    "stop": ("POST", f"{ONE}/stop", {}),
    "start": ("POST", f"{ONE}/start", {}),
    "cancel": ("POST", f"{ONE}/cancel-update", {}),
    "delete": ("DELETE", ONE, None),
    "set permissions": ("PUT", ACCESS, SHARE),
    "update permissions": ("PATCH", ACCESS, SHARE),
}

PAGE_TABLE = """
    GET overview        | 200  200  200  200  200  404  302
    GET status/         | 200  200  200  200  200  404  302
    GET events/         | 200  200  200  200  200  404  302
    GET settings/       | 200  200  200  200  200  404  302
    GET query/          | 200  200  200  200  200  404  302
    GET logs/           | 200  200  200  200  200  404  302
    GET logs/status/    | 200  200  200  200  200  404  302
    GET logs/lines/     | 200  200  200  200  200  404  401
    GET logs/download/  | 200  200  200  200  200  404  302
    POST query/         | 200  200  200  200  403  404  302
    GET edit/           | 200  200  200  403  403  404  302
    POST edit/          | 400  400  400  403  403  404  302
    POST edit/fields/   | 200  200  200  403  403  404  302
    POST edit/entity/0/ | 200  200  200  403  403  404  302
    POST edit/summary/  | 200  200  200  403  403  404  302
    GET stop/           | 200  200  200  403  403  404  302
    POST stop/          | 302  302  302  403  403  404  302
    POST start/         | 302  302  302  403  403  404  302
    POST retry/         | 302  302  302  403  403  404  302
    POST cancel/        | 302  302  302  403  403  404  302
    GET delete/         | 200  200  200  403  403  404  302
    POST delete/        | 302  302  302  403  403  404  302
    POST permissions/   | 302  302  302  403  403  404  302
"""
PAGE_BODIES = {
    "query/": {"body": '{"inputs": [[1, 2, 3]]}'},
    "edit/": {"entities": "1"},
    "edit/fields/": {"entities": "1"},
    "edit/entity/0/": {"entities": "1"},
    "edit/summary/": {"entities": "1"},
    "delete/": {"confirm": "detector"},
    "permissions/": {"kind": "user", "who": "stranger", "level": "CAN_VIEW", "action": "add"},
}

# What a page offers; the page, then words or an address that stand on it.
SHOWN_TABLE = """
    overview: /endpoints/detector/edit/   | 1    1    1    0    0
    overview: /endpoints/detector/retry/  | 1    1    1    0    0
    overview: /endpoints/detector/stop/   | 1    1    1    0    0
    overview: /endpoints/detector/delete/ | 1    1    1    0    0
    settings/: Danger zone                | 1    1    1    0    0
    settings/: /detector/permissions/     | 1    1    1    0    0
    query/: Send request                  | 1    1    1    1    0
"""


@pytest.fixture
def scene() -> Scene:
    return make_scene()


def prepare(endpoint: Endpoint, row: str) -> None:
    """Bring the endpoint into the state in which the action makes sense."""
    if "start" in row:
        Endpoint.objects.filter(pk=endpoint.pk).update(is_stopped=True)
    if "cancel" in row:
        config = EndpointConfigFactory(endpoint=endpoint, version=2)
        ServedEntityFactory(config=config, state=EntityState.DEPLOYMENT_CREATING)
        DeploymentFactory(config=config, state=DeploymentState.QUEUED)
        Endpoint.objects.filter(pk=endpoint.pk).update(
            pending_config=config, config_update=ConfigUpdate.IN_PROGRESS
        )


# ---------------------------------------------------------------- the API


@pytest.mark.parametrize(("row", "who", "status"), cells(API_TABLE))
def test_the_api_lets_pass_whom_it_should(scene: Scene, row: str, who: str, status: int) -> None:
    prepare(scene.endpoint, row)
    method, path, body = API_CALLS[row]
    if row == "config":
        entity = scene.endpoint.active_config.entities.get()  # type: ignore[union-attr]  # it is live
        body = {"served_entities": [_wanted(entity.entity_name, entity.entity_version)]}
    person = scene.person(who)

    answer = Client().generic(
        method,
        path.format(id=scene.endpoint.public_id),
        json.dumps(body) if body is not None else "",
        "application/json",
        headers=person.headers if person else {},
    )

    assert answer.status_code == status, answer.content
    if status >= 400:
        code = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "RESOURCE_DOES_NOT_EXIST"}
        assert answer.json()["error_code"] == code[status]


def _wanted(name: str, version: str) -> dict[str, str]:
    return {"name": "main", "entity_name": name, "entity_version": version}


@pytest.mark.parametrize("who", WHO[:-1])
def test_lists_hold_what_the_caller_sees(scene: Scene, who: str) -> None:
    is_listed = who != "stranger"
    person = scene.person(who)
    assert person is not None

    answer = Client().get(BASE, headers=person.headers).json()
    client = Client()
    client.force_login(person.user)
    page = client.get("/").content.decode()

    assert [e["name"] for e in answer["endpoints"]] == (["detector"] if is_listed else [])
    assert ("/endpoints/detector/" in page) == is_listed
    assert ("/endpoints/detector/edit/" in page) == (who in {"admin", "creator", "manager"})


# ---------------------------------------------------------------- the pages


def browser(scene: Scene, who: str) -> Client:
    client = Client()
    person = scene.person(who)
    if person is not None:
        client.force_login(person.user)
    return client


@pytest.mark.parametrize(("row", "who", "status"), cells(PAGE_TABLE))
def test_the_pages_let_pass_whom_they_should(scene: Scene, row: str, who: str, status: int) -> None:
    prepare(scene.endpoint, row)
    method, _, tab = row.partition(" ")
    tab = tab.replace("overview", "")
    client = browser(scene, who)

    path = f"/endpoints/detector/{tab}"
    answer = client.post(path, PAGE_BODIES.get(tab, {})) if method == "POST" else client.get(path)

    assert answer.status_code == status, answer.content
    if status == 302:
        is_sent_to_login = answer["Location"].startswith("/login/")
        assert is_sent_to_login == (who == "anonymous")


@pytest.mark.parametrize(("row", "who", "shown"), cells(SHOWN_TABLE, WHO[:5]))
def test_the_pages_show_only_what_may_be_done(scene: Scene, row: str, who: str, shown: int) -> None:
    tab, _, words = row.partition(": ")

    page = browser(scene, who).get(f"/endpoints/detector/{tab.replace('overview', '')}")

    assert (words in page.content.decode()) == bool(shown)


def test_a_refused_post_changes_nothing(scene: Scene) -> None:
    before = list(scene.endpoint.permissions.values_list("user__username", "level"))
    for who in ("querier", "viewer", "stranger", "anonymous"):
        client = browser(scene, who)
        for tab in ("stop/", "delete/", "permissions/"):
            client.post(f"/endpoints/detector/{tab}", PAGE_BODIES.get(tab, {}))

    after = Endpoint.objects.get(name="detector")
    assert not after.is_stopped
    assert list(after.permissions.values_list("user__username", "level")) == before
