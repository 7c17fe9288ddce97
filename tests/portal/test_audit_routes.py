"""Every route that changes something leaves a row in the audit log, or stands here with why not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import Client

from portal.audit.models import AuditEvent
from portal.endpoints.models import Endpoint
from portal.registry.models import UploadSession
from portal.secrets import services as secrets
from portal.secrets.states import ScopePermission
from tests.support.api_routes import all_routes
from tests.support.endpoint_form import form
from tests.support.factories import (
    PASSWORD,
    Cast,
    ModelAliasFactory,
    ModelVersionFactory,
    UserFactory,
    live_endpoint,
    make_cast,
)
from tests.support.live_portal import Files, LivePortal

WRITING = ("POST", "PUT", "PATCH", "DELETE")
MODEL = "main.vision.detector"
VERSION = {"name": MODEL, "version": "1"}
ENTITY = {"entity_name": MODEL, "entity_version": "1", "name": "m"}
TAG = {"key": "k", "value": "v"}
LIMIT = {"key": "endpoint", "calls": 5, "renewal_period": "minute"}
GRANT = {"access_control_list": [{"user_name": "viewer", "permission_level": "CAN_QUERY"}]}
READER = {"access_control_list": [{"user_name": "viewer", "permission_level": "CAN_READ"}]}
SECRET = {"scope": "db", "key": "k"}
FILE = "Volumes/main/default/data/a.bin"

SERVING = "/api/2.0/serving-endpoints"
MODELS = "/api/2.0/mlflow/unity-catalog/registered-models"
VERSIONS = "/api/2.0/mlflow/unity-catalog/model-versions"
SECRETS = "/api/2.0/secrets"
FS = "/api/2.0/fs"
SCIM = "/api/2.0/preview/scim/v2"
DEACTIVATE = {"Operations": [{"op": "replace", "path": "active", "value": False}]}
JOIN = {"Operations": [{"op": "add", "path": "members", "value": [{"value": "{user}"}]}]}

NOT_AUDITED: dict[tuple[str, str], str] = {
    ("POST", "/preferences/"): "a cookie of one's own",
    ("POST", "/logout/"): "ends one's own session and nothing else",
    ("PUT", "/login/"): "Django's form views take PUT for POST",
    ("PUT", "/settings/password/"): "Django's form views take PUT for POST",
    **{
        ("POST", f"/endpoints/{form}/{part}/"): "shows the form anew; nothing is kept"
        for form in ("new", "{name}/edit")
        for part in ("fields", "entity/{index}", "summary")
    },
    ("POST", "/endpoints/{name}/query/"): "asks the endpoint; the gateway counts it",
    ("POST", f"{VERSIONS}/generate-temporary-credentials"): "gives no credentials; nothing is kept",
    ("POST", f"{VERSIONS}/emit-lineage"): "lineage is not kept",
    ("POST", f"{FS}/create-upload-part-urls"): "the file leaves a row once it is complete",
    ("POST", f"{FS}/create-upload-url"): "the upload through the link leaves a row",
    ("POST", f"{FS}/create-download-url"): "reads",
}


@dataclass(frozen=True)
class Act:
    """A call that succeeds and changes something."""

    method: str
    template: str
    body: Mapping[str, Any] = field(default_factory=dict)
    query: str = ""
    places: Mapping[str, str] = field(default_factory=dict)


ACTS = [
    Act("POST", "/login/", {"username": "viewer", "password": PASSWORD}),
    Act(
        "POST",
        "/settings/password/",
        {"old_password": PASSWORD, "new_password1": "a horse!", "new_password2": "a horse!"},
    ),
    Act("POST", "/settings/tokens/", {"form_id": "f" * 32, "comment": "c", "lifetime": "86400"}),
    Act("POST", "/settings/tokens/{public_id}/revoke/", places={"public_id": "{token}"}),
    Act("POST", "/settings/users/new/", {"username": "new"}),
    Act("POST", "/settings/users/{user_id}/admin/", {"is_admin": "true"}),
    Act("POST", "/settings/users/{user_id}/activate/"),
    Act("POST", "/settings/users/{user_id}/deactivate/"),
    Act("POST", "/settings/users/{user_id}/password/"),
    Act("POST", "/settings/groups/", {"name": "another"}),
    Act("POST", "/settings/groups/{group_id}/members/", {"user": "viewer", "action": "add"}),
    Act("POST", "/settings/groups/{group_id}/delete/"),
    Act("POST", f"{SCIM}/Users", {"userName": "another"}),
    Act("PATCH", f"{SCIM}/Users/{{user_id}}", DEACTIVATE),
    Act("PUT", f"{SCIM}/Users/{{user_id}}", {"displayName": "Vi"}),
    Act("DELETE", f"{SCIM}/Users/{{user_id}}", places={"user_id": "{newcomer}"}),
    Act("POST", f"{SCIM}/Groups", {"displayName": "another"}),
    Act("PATCH", f"{SCIM}/Groups/{{group_id}}", JOIN),
    Act("PUT", f"{SCIM}/Groups/{{group_id}}", {"members": [{"value": "{user}"}]}),
    Act("DELETE", f"{SCIM}/Groups/{{group_id}}"),
    Act("POST", "/api/2.0/token/create"),
    Act("POST", "/api/2.0/token/delete", {"token_id": "{token}"}),
    Act("POST", "/settings/previews/{name}/", {"enabled": "true"}, places={"name": "{preview}"}),
    Act("PATCH", "/api/2.0/previews/{name}", {"enabled": True}, places={"name": "{preview}"}),
    # ------------------------------------------------------------ secrets
    Act("POST", "/settings/secrets/", {"scope": "another"}),
    Act("POST", "/settings/secrets/{scope}/", {"key": "other", "value": "x"}),
    Act("POST", "/settings/secrets/{scope}/delete/"),
    Act(
        "POST",
        "/settings/secrets/{scope}/permissions/",
        {"principal": "viewer", "permission": "READ"},
    ),
    Act("POST", "/settings/secrets/{scope}/permissions/delete/", {"principal": "team"}),
    Act("POST", "/settings/secrets/{scope}/keys/{key}/delete/"),
    Act("POST", f"{SECRETS}/scopes/create", {"scope": "another"}),
    Act("POST", f"{SECRETS}/scopes/delete", {"scope": "db"}),
    Act("POST", f"{SECRETS}/put", SECRET | {"string_value": "v"}),
    Act("POST", f"{SECRETS}/delete", SECRET),
    Act(
        "POST",
        f"{SECRETS}/acls/put",
        {"scope": "db", "principal": "users", "permission": "READ"},
    ),
    Act("POST", f"{SECRETS}/acls/delete", {"scope": "db", "principal": "team"}),
    # ------------------------------------------------------------ models and files
    Act("POST", f"{MODELS}/create", {"name": "main.vision.another"}),
    Act("PATCH", f"{MODELS}/update", {"name": MODEL, "description": "d"}),
    Act("DELETE", f"{MODELS}/delete", {"name": MODEL}),
    Act("POST", f"{MODELS}/set-tag", {"name": MODEL} | TAG),
    Act("DELETE", f"{MODELS}/delete-tag", {"name": MODEL, "key": "old"}),
    Act("POST", f"{MODELS}/alias", VERSION | {"alias": "a"}),
    Act("DELETE", f"{MODELS}/alias", {"name": MODEL, "alias": "champion"}),
    Act("POST", f"{VERSIONS}/create", {"name": MODEL, "source": "s"}),
    Act("PATCH", f"{VERSIONS}/update", VERSION | {"description": "d"}),
    Act("DELETE", f"{VERSIONS}/delete", VERSION),
    Act("POST", f"{VERSIONS}/finalize", {"name": MODEL, "version": "2"}),
    Act("POST", f"{VERSIONS}/set-tag", VERSION | TAG),
    Act("DELETE", f"{VERSIONS}/delete-tag", VERSION | {"key": "old"}),
    Act("POST", f"{SERVING}:stageDeployment", {"model_name": MODEL, "model_version": "3"}),
    Act("PUT", "/api/2.0/permissions/registered-models/{name}", READER, places={"name": MODEL}),
    Act("PATCH", "/api/2.0/permissions/registered-models/{name}", READER, places={"name": MODEL}),
    Act("POST", "/models/{name}/readers/", {"action": "restrict"}, places={"name": MODEL}),
    Act("POST", "/models/{name}/versions/{number}/stage/", places={"name": MODEL, "number": "3"}),
    Act("PUT", f"{FS}/directories/{{path}}", places={"path": "Volumes/main/default/data/new"}),
    Act("DELETE", f"{FS}/directories/{{path}}", places={"path": "Volumes/main/default/data/old"}),
    Act("DELETE", f"{FS}/files/{{path}}"),
    Act(
        "POST",
        f"{FS}/files/{{path}}",
        {"parts": [{"part_number": 1, "etag": "{etag}"}]},
        query="?action=complete-upload&upload_type=multipart&session_token={session}",
        places={"path": "Volumes/main/default/data/whole.bin"},
    ),
    # ------------------------------------------------------------ endpoints
    Act("POST", "/endpoints/new/", form()),
    Act("POST", "/endpoints/{name}/edit/", form() | {"name": "live"}),
    Act("POST", "/endpoints/{name}/permissions/", {"who": "viewer", "level": "CAN_VIEW"}),
    Act("POST", "/endpoints/{name}/limits/", {"endpoint": "5"}),
    Act("POST", "/endpoints/{name}/delete/", {"confirm": "live"}),
    Act("POST", "/endpoints/{name}/stop/"),
    Act("POST", "/endpoints/{name}/start/", places={"name": "stopped"}),
    Act("POST", "/endpoints/{name}/retry/"),
    Act("POST", "/endpoints/{name}/batching/measure/", {"entity": "main"}),
    Act("POST", "/endpoints/{name}/cancel/", places={"name": "updating"}),
    Act("POST", SERVING, {"name": "another", "config": {"served_entities": [ENTITY]}}),
    Act("DELETE", f"{SERVING}/{{name}}"),
    Act("PUT", f"{SERVING}/{{name}}/config", {"served_entities": [ENTITY]}),
    Act("PATCH", f"{SERVING}/{{name}}/tags", {"add_tags": [TAG]}),
    Act(
        "PATCH",
        f"{SERVING}/{{name}}/notifications",
        {"email_notifications": {"on_update_success": ["a@example.com"]}},
    ),
    Act("PUT", f"{SERVING}/{{name}}/rate-limits", {"rate_limits": [LIMIT]}),
    Act("PUT", f"{SERVING}/{{name}}/ai-gateway", {"rate_limits": [LIMIT]}),
    Act("POST", f"{SERVING}/{{name}}/stop"),
    Act("POST", f"{SERVING}/{{name}}/start", places={"name": "stopped"}),
    Act("POST", f"{SERVING}/{{name}}/cancel-update", places={"name": "updating"}),
    Act("POST", f"{SERVING}/{{name}}/served-models/{{entity}}/profile"),
    Act("PUT", "/api/2.0/permissions/serving-endpoints/{public_id}", GRANT),
    Act("PATCH", "/api/2.0/permissions/serving-endpoints/{public_id}", GRANT),
]


class World:
    """Something of everything, an admin's."""

    def __init__(self) -> None:
        self.cast: Cast = make_cast()
        admin = self.cast.admin.user
        packed = {"model__name": MODEL, "model__owner": admin}
        version = ModelVersionFactory(staged=True, version=1, **packed)
        uploading = ModelVersionFactory(model=version.model, version=2, uploading=True)
        ModelVersionFactory(model=version.model, version=3, packed=True)
        version.model.last_version = 3
        version.model.save()
        version.tags.create(key="old", value="v")
        version.model.tags.create(key="old", value="v")
        ModelAliasFactory(model_version=version)
        uploading.files_directory.mkdir(parents=True)
        (uploading.files_directory / "MLmodel").write_text("flavors:\n  python_function: {}\n")
        team = Group.objects.create(name="team")
        secrets.create_scope(admin, "db")
        secrets.put_secret(admin, "db", "k", b"value")
        secrets.put_acl(admin, "db", "team", ScopePermission.READ)
        live = self._endpoint("live", version)
        Endpoint.objects.filter(pk=self._endpoint("stopped", version).pk).update(is_stopped=True)
        self._endpoint("updating", version)
        self.call(
            Act(
                "PUT",
                f"{SERVING}/{{name}}/config",
                {"served_entities": [ENTITY]},
                places={"name": "updating"},
            )
        )
        self.places = {
            **{
                "entity": "main",
                "name": "live",
                "public_id": live.public_id,
                "path": FILE,
                "scope": "db",
            },
            **{"key": "k", "group_id": str(team.pk), "user_id": str(self.cast.viewer.user.pk)},
        }
        self.words = {
            "{token}": self.cast.viewer.user.tokens.get().public_id,
            "{user}": str(self.cast.viewer.user.pk),
            "{newcomer}": str(UserFactory().pk),
            "{preview}": "throughput_optimized",
            **self._files(),
        }

    places: dict[str, str] = {}
    words: dict[str, str] = {}

    def _endpoint(self, name: str, version: Any) -> Endpoint:
        return live_endpoint(
            creator=self.cast.admin.user, endpoint_name=name, model_version=version
        )

    def _files(self) -> dict[str, str]:
        """A file, an empty directory, and an upload whose only part has arrived."""
        folder = Path(settings.FILES_DIR, *FILE.split("/")).parent
        (folder / "old").mkdir(parents=True)
        (folder / "a.bin").write_bytes(b"x")
        begin = Act(
            "POST",
            f"{FS}/files/{{path}}",
            query="?action=initiate-upload&overwrite=true",
            places={"path": "Volumes/main/default/data/whole.bin"},
        )
        session = self.call(begin).json()["multipart_upload"]["session_token"]
        from portal.registry.services.parts import PartWriter

        part = PartWriter(session, 1, 4)
        part.write(b"data")
        etag = part.finish()
        part.close()
        assert UploadSession.objects.filter(token=session).exists()
        return {"{session}": session, "{etag}": etag}

    def call(self, act: Act) -> Any:
        """Make a call, as a browser or as a client."""
        places = self.places | {k: self.filled(v) for k, v in act.places.items()}
        path = act.template.format(**places) + self.filled(act.query)
        body = json.loads(self.filled(json.dumps(act.body)))
        if act.template.startswith("/api/"):
            client = Client(headers=self.cast.admin.headers)
            return client.generic(act.method, path, json.dumps(body), "application/json")
        browser = Client()
        if act.template != "/login/":
            browser.force_login(self.cast.admin.user)
        return browser.post(path, body)

    def filled(self, text: str) -> str:
        for word, value in self.words.items():
            text = text.replace(word, value)
        return text


@pytest.fixture
def world(valkey: Any) -> World:
    return World()


@pytest.mark.django_db
def test_every_route_that_changes_something_leaves_a_row(world: World) -> None:
    for act in ACTS:
        with transaction.atomic():
            newest = AuditEvent.objects.first()
            answer = world.call(act)
            new = AuditEvent.objects.filter(pk__gt=newest.pk if newest else 0)

            assert answer.status_code in {200, 204, 302}, (act, answer.content[:2000])
            assert [row.outcome for row in new] == ["done"], (act, list(new))
            transaction.set_rollback(True)


@pytest.mark.django_db
def test_no_route_that_changes_something_is_forgotten(world: World) -> None:
    known = {(act.method, act.template) for act in ACTS} | set(NOT_AUDITED)
    browser = Client(raise_request_exception=False)
    browser.force_login(world.cast.admin.user)
    places = {name: "1" for route in all_routes() for name in route.names} | world.places

    found = set()
    for route in all_routes():
        methods = route.methods
        if not route.is_api and not methods:  # a function: ask it
            here = places | ({"name": MODEL} if route.template.startswith("/models/") else {})
            with transaction.atomic():
                answer = browser.post(route.path(here))
                transaction.set_rollback(True)
            methods = () if answer.status_code == 405 else ("POST",)
        found |= {(method, route.template) for method in methods if method in WRITING}

    assert found - known == set(), "add it to ACTS, or to NOT_AUDITED with the reason"
    assert known - found == set()


def test_uploads_leave_a_row_however_they_come_in(live_portal: LivePortal) -> None:
    admin = Files(live_portal, live_portal.token("auditor", is_admin=True))
    writer = Files(live_portal, live_portal.token("writer"))
    folder = writer.new_version("main.audit.model")

    writer.file("PUT", f"{folder}/by-token.bin?overwrite=true", data=b"12345")
    link = writer(
        "POST", "/api/2.0/fs/create-upload-url", json={"path": f"{folder}/by-link.bin"}
    ).json()["url"]
    writer.session.put(link, data=b"123", headers={"Authorization": ""}, timeout=60)
    other = Files(live_portal, live_portal.token("other-writer"))
    refused = other.file("PUT", f"{folder}/refused.bin?overwrite=true", data=b"1")

    events = admin("GET", "/api/2.0/audit-logs?object_name=main/audit/model").json()["events"]
    assert refused.status_code == 403
    assert [(e["action"], e["actor"], e["via"], e["outcome"]) for e in events] == [
        ("denied", "other-writer", "token", "denied"),
        ("file.put", "writer", "link", "done"),
        ("file.put", "writer", "token", "done"),
    ]
    assert events[2]["object_name"] == f"{folder}/by-token.bin"
    assert events[2]["detail"] == {"size_bytes": 5}
    assert all(event["address"] == "127.0.0.1" and event["request_id"] for event in events)
    assert events[2]["token_id"] is not None
