"""Each act leaves exactly one row that tells who, how, from where, what and to what; no secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.accounts import services as accounts
from portal.accounts.models import PersonalAccessToken, User
from portal.audit import tasks
from portal.audit.models import AppendOnly, AuditEvent
from portal.audit.services import Action, ObjectKind, Outcome, record
from portal.endpoints import services as endpoints
from portal.endpoints.states import UNDER_WAY
from portal.registry.models import ModelVersion
from portal.secrets import services as secrets
from portal.secrets.states import ScopePermission
from tests.support.factories import (
    PASSWORD,
    Cast,
    ModelVersionFactory,
    Person,
    UserFactory,
    live_endpoint,
    make_cast,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

VALUE = "correct-horse-battery-staple"


@pytest.fixture
def cast() -> Cast:
    cast = make_cast()
    secrets.create_scope(cast.admin.user, "db")
    secrets.put_secret(cast.admin.user, "db", "k", b"before")
    return cast


class Recorder:
    """Takes the rows that an act leaves."""

    def __init__(self) -> None:
        self.last = 0
        self.skip()

    def skip(self) -> None:
        newest = AuditEvent.objects.first()
        self.last = newest.pk if newest else 0

    def new(self) -> list[AuditEvent]:
        return list(AuditEvent.objects.filter(pk__gt=self.last))

    def one(self) -> AuditEvent:
        (row,) = self.new()
        return row


def api(person: Person, method: str, path: str, body: Any = None) -> Any:
    client = Client(headers=person.headers | {"X-Request-Id": "request-7"})
    return client.generic(method, path, json.dumps(body or {}), "application/json")


def browser(person: Person) -> Client:
    client = Client(headers={"X-Request-Id": "request-7"})
    client.force_login(person.user)
    return client


SERVING = "/api/2.0/serving-endpoints"
MODELS = "/api/2.0/mlflow/unity-catalog/registered-models"
VERSIONS = "/api/2.0/mlflow/unity-catalog/model-versions"
SECRETS = "/api/2.0/secrets"
MODEL = "main.default.detector"
ENTITY = {"entity_name": MODEL, "entity_version": "1", "name": "m"}

# name, method, path, body, action, kind, object, part of the detail
API_ACTS: list[tuple[str, str, Any, str, str, str, dict[str, Any]]] = [
    (
        "POST",
        SERVING,
        {"name": "new-one", "config": {"served_entities": [ENTITY]}},
        "endpoint.create",
        "endpoint",
        "new-one",
        {"config_version": 1},
    ),
    (
        "PUT",
        f"{SERVING}/ep/config",
        {"served_entities": [ENTITY]},
        "endpoint.update",
        "endpoint",
        "ep",
        {"config_version": 2},
    ),
    (
        "PATCH",
        f"{SERVING}/ep/tags",
        {"add_tags": [{"key": "a", "value": "b"}]},
        "endpoint.change",
        "endpoint",
        "ep",
        {"changed": "tags"},
    ),
    (
        "PUT",
        f"{SERVING}/ep/rate-limits",
        {"rate_limits": [{"key": "endpoint", "calls": 5, "renewal_period": "minute"}]},
        "endpoint.change",
        "endpoint",
        "ep",
        {"changed": "rate_limits"},
    ),
    (
        "POST",
        f"{SERVING}/ep/served-models/main/profile",
        {},
        "endpoint.measure",
        "endpoint",
        "ep",
        {"served_entity": "main"},
    ),
    ("POST", f"{SERVING}/ep/stop", {}, "endpoint.stop", "endpoint", "ep", {}),
    ("DELETE", f"{SERVING}/ep", {}, "endpoint.delete", "endpoint", "ep", {}),
    (
        "PATCH",
        "/api/2.0/permissions/serving-endpoints/{endpoint}",
        {"access_control_list": [{"user_name": "viewer", "permission_level": "CAN_QUERY"}]},
        "endpoint.permissions",
        "endpoint",
        "ep",
        {"granted": {"viewer": "CAN_QUERY"}, "replaced_all": False},
    ),
    (
        "PATCH",
        "/api/2.0/previews/throughput_optimized",
        {"enabled": True},
        "preview.set",
        "preview",
        "throughput_optimized",
        {"enabled": True},
    ),
    (
        "POST",
        f"{MODELS}/create",
        {"name": "main.default.x"},
        "model.create",
        "model",
        "main.default.x",
        {},
    ),
    (
        "PATCH",
        f"{MODELS}/update",
        {"name": MODEL, "description": "d"},
        "model.update",
        "model",
        MODEL,
        {"description_changed": True, "new_name": MODEL},
    ),
    ("DELETE", f"{MODELS}/delete", {"name": MODEL}, "model.delete", "model", MODEL, {}),
    (
        "POST",
        f"{MODELS}/alias",
        {"name": MODEL, "alias": "champion", "version": "1"},
        "alias.set",
        "model",
        MODEL,
        {"alias": "champion", "version": "1"},
    ),
    (
        "POST",
        f"{VERSIONS}/create",
        {"name": MODEL, "source": "s"},
        "version.create",
        "version",
        f"{MODEL}/2",
        {},
    ),
    (
        "DELETE",
        f"{VERSIONS}/delete",
        {"name": MODEL, "version": "1"},
        "version.delete",
        "version",
        f"{MODEL}/1",
        {},
    ),
    (
        "POST",
        f"{SECRETS}/scopes/create",
        {"scope": "s"},
        "scope.create",
        "scope",
        "s",
        {"managed_by": "admin"},
    ),
    (
        "POST",
        f"{SECRETS}/scopes/delete",
        {"scope": "db"},
        "scope.delete",
        "scope",
        "db",
        {"keys": 1},
    ),
    (
        "POST",
        f"{SECRETS}/put",
        {"scope": "db", "key": "k", "string_value": VALUE},
        "secret.put",
        "secret",
        "db/k",
        {"is_new": False},
    ),
    (
        "POST",
        f"{SECRETS}/delete",
        {"scope": "db", "key": "k"},
        "secret.delete",
        "secret",
        "db/k",
        {},
    ),
    (
        "POST",
        f"{SECRETS}/acls/put",
        {"scope": "db", "principal": "users", "permission": "READ"},
        "scope.permissions",
        "scope",
        "db",
        {"principal": "users", "permission": "READ"},
    ),
    (
        "POST",
        f"{SECRETS}/acls/delete",
        {"scope": "db", "principal": "admin"},
        "scope.permissions",
        "scope",
        "db",
        {"principal": "admin", "permission": None},
    ),
]


@pytest.fixture
def objects(cast: Cast) -> str:
    """An endpoint "ep" and a model version; gives the endpoint's public id."""
    version: ModelVersion = ModelVersionFactory(staged=True, model__name=MODEL)
    endpoint = live_endpoint(endpoint_name="ep", model_version=version, creator=cast.admin.user)
    return endpoint.public_id


@pytest.mark.parametrize("act", API_ACTS, ids=lambda act: f"{act[3]} {act[1].rpartition('/')[2]}")
def test_an_act_by_token_leaves_one_row(
    cast: Cast, objects: str, act: tuple[str, str, Any, str, str, str, dict[str, Any]]
) -> None:
    method, path, body, action, kind, name, detail = act
    recorder = Recorder()

    answer = api(cast.admin, method, path.format(endpoint=objects), body)

    assert answer.status_code == 200, answer.content
    row = recorder.one()
    assert (row.action, row.object_kind, row.object_name) == (action, kind, name)
    assert (row.actor, row.actor_id, row.via) == ("admin", cast.admin.user.pk, "token")
    assert row.token_id == cast.admin.user.tokens.get().public_id
    assert (row.address, row.request_id, row.outcome) == ("127.0.0.1", "request-7", "done")
    assert detail.items() <= row.detail.items()
    assert VALUE not in json.dumps(row.detail)


def test_other_acts_on_endpoints_leave_one_row(cast: Cast, objects: str) -> None:
    manager = cast.admin.user
    endpoint = endpoints.get_endpoint(manager, "ep")
    recorder = Recorder()

    def act(done: Callable[[], object]) -> str:
        done()
        action = recorder.one().action
        recorder.skip()
        endpoint.refresh_from_db()
        return action

    assert act(lambda: endpoints.retry_deployment(manager, endpoint)) == "endpoint.retry"
    assert act(lambda: endpoints.cancel_update(manager, endpoint)) == "endpoint.cancel"
    assert not endpoint.deployments.filter(state__in=UNDER_WAY).exists()
    assert act(lambda: endpoints.stop_endpoint(manager, endpoint)) == "endpoint.stop"
    assert act(lambda: endpoints.start_endpoint(manager, endpoint)) == "endpoint.start"


def test_a_config_s_variables_are_named_but_not_told(cast: Cast, objects: str) -> None:
    recorder = Recorder()
    variables = {"PLAIN": VALUE, "SECRET": "{{secrets/db/k}}"}

    body = {"served_entities": [ENTITY | {"environment_vars": variables}]}
    assert api(cast.admin, "PUT", f"{SERVING}/ep/config", body).status_code == 200

    (entity,) = recorder.one().detail["served_entities"]
    assert entity["environment_variables"] == ["PLAIN", "SECRET"]
    assert VALUE not in json.dumps(recorder.one().detail)


# ---------------------------------------------------------------- accounts


def test_tokens_leave_a_row_without_their_value(cast: Cast) -> None:
    recorder = Recorder()
    body = api(cast.viewer, "POST", "/api/2.0/token/create", {"comment": "mine"}).json()

    row = recorder.one()
    token_id = body["token_info"]["token_id"]
    assert (row.action, row.object_name, row.actor) == ("token.create", token_id, "viewer")
    assert row.detail == {"owner": "viewer", "lifetime_s": None}
    assert body["token_value"] not in json.dumps([row.detail, row.object_name])

    recorder.skip()
    browser(cast.admin).post(reverse("token-revoke", args=[token_id]))
    row = recorder.one()
    assert (row.action, row.object_name, row.actor) == ("token.revoke", token_id, "admin")
    assert (row.via, row.token_id, row.detail) == ("session", "", {"owner": "viewer"})

    recorder.skip()
    accounts.revoke_token(PersonalAccessToken.objects.get(public_id=token_id))
    assert recorder.new() == []  # it was revoked before


def test_acts_on_users_leave_one_row_each(cast: Cast) -> None:
    client = browser(cast.admin)
    viewer = cast.viewer.user.pk
    recorder = Recorder()
    acts = [
        (reverse("user-create"), {"username": "new"}, "user.create", "new"),
        (reverse("user-admin", args=[viewer]), {"is_admin": "true"}, "user.set_admin", "viewer"),
        (reverse("user-deactivate", args=[viewer]), {}, "user.deactivate", "viewer"),
        (reverse("user-activate", args=[viewer]), {}, "user.activate", "viewer"),
        (reverse("user-password", args=[viewer]), {}, "user.reset_password", "viewer"),
        (
            reverse("password"),
            {
                "old_password": PASSWORD,
                "new_password1": "another horse!",
                "new_password2": "another horse!",
            },
            "user.change_password",
            "admin",
        ),
    ]
    for url, form, action, name in acts:
        answer = client.post(url, form)
        row = recorder.one()
        assert (row.action, row.object_name, row.actor, row.via) == (
            action,
            name,
            "admin",
            "session",
        )
        shown = re.search(r'class="secret"><code>([^<]+)</code>', answer.content.decode())
        assert shown is None or shown[1] not in json.dumps(row.detail)
        recorder.skip()


def test_acts_on_groups_leave_one_row_each(cast: Cast) -> None:
    client = browser(cast.admin)
    recorder = Recorder()
    client.post(reverse("groups"), {"name": "team"})
    group = Group.objects.get(name="team")
    secrets.put_acl(cast.admin.user, "db", "team", ScopePermission.READ)
    rows = [recorder.new()[1]]
    for url, form in (
        (reverse("group-member", args=[group.pk]), {"user": "viewer", "action": "add"}),
        (reverse("group-member", args=[group.pk]), {"user": "viewer", "action": "remove"}),
        (reverse("group-delete", args=[group.pk]), {}),
    ):
        recorder.skip()
        client.post(url, form)
        rows.append(recorder.one())

    assert [row.action for row in rows] == [
        *("group.create", "group.member", "group.member", "group.delete")
    ]
    assert {(row.object_kind, row.object_name, row.actor) for row in rows} == {
        ("group", "team", "admin")
    }
    assert [row.detail.get("is_member") for row in rows] == [None, True, False, None]
    assert len(secrets.list_acls(cast.admin.user, "db")) == 1  # the group's is gone with it


def test_logins_are_written_down_whether_they_work_or_not(cast: Cast) -> None:
    recorder = Recorder()
    client = Client(REMOTE_ADDR="10.1.2.3")

    client.post(reverse("login"), {"username": "viewer", "password": "wrong"})
    row = recorder.one()
    assert (row.action, row.outcome, row.object_name) == ("login", "failed", "viewer")
    assert (row.actor, row.via, row.address) == ("", "nobody", "10.1.2.3")

    recorder.skip()
    client.post(reverse("login"), {"username": "viewer", "password": PASSWORD})
    row = recorder.one()
    assert (row.action, row.outcome, row.object_name) == ("login", "done", "viewer")
    assert (row.actor, row.via, row.address) == ("viewer", "session", "10.1.2.3")


def test_a_password_in_the_name_s_field_is_not_kept(cast: Cast) -> None:
    Client().post(reverse("login"), {"username": VALUE, "password": "x"})

    assert AuditEvent.objects.first().object_name == "(no such user)"  # type: ignore[union-attr]  # there is one


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", f"{SERVING}/ep"),
        ("PATCH", "/api/2.0/previews/throughput_optimized"),
        ("DELETE", f"{MODELS}/delete"),
    ],
)
def test_a_refused_change_leaves_one_row(cast: Cast, objects: str, method: str, path: str) -> None:
    cast.share(endpoints.get_endpoint(cast.admin.user, "ep"))
    recorder = Recorder()

    answer = api(cast.viewer, method, path, {"name": MODEL, "enabled": True})

    assert answer.status_code == 403
    row = recorder.one()
    assert (row.action, row.outcome, row.actor) == ("denied", "denied", "viewer")
    assert (row.object_kind, row.object_name, row.detail) == ("path", path, {"method": method})


def test_an_attempt_to_read_a_secret_leaves_one_row(cast: Cast) -> None:
    recorder = Recorder()

    answer = api(cast.admin, "GET", f"{SECRETS}/get?scope=db&key=k")

    assert answer.status_code == 403
    row = recorder.one()
    assert (row.action, row.outcome, row.object_name) == ("secret.read", "denied", "db/k")


def test_reading_and_bad_requests_leave_none(cast: Cast, objects: str) -> None:
    recorder = Recorder()

    api(cast.admin, "GET", SERVING)
    api(cast.stranger, "GET", f"{SERVING}/ep")
    api(cast.admin, "POST", SERVING, {"name": "??"})
    Client().post(f"{SERVING}/ep")

    assert recorder.new() == []


def test_an_act_that_is_rolled_back_leaves_none(cast: Cast) -> None:
    recorder = Recorder()

    with transaction.atomic():
        secrets.create_scope(cast.admin.user, "gone")
        transaction.set_rollback(True)

    assert recorder.new() == []


# ---------------------------------------------------------------- without a request


def test_the_console_and_the_system_act_under_their_own_names() -> None:
    UserFactory(username="maria")
    recorder = Recorder()

    call_command("create_token", "maria")
    assert (recorder.one().via, recorder.one().actor) == ("console", "")

    recorder.skip()
    record(Action.ENDPOINT_STOP, ObjectKind.ENDPOINT, "e")
    assert (recorder.one().via, recorder.one().actor) == ("system", "")


def test_a_request_s_user_is_forgotten_when_it_is_over(cast: Cast) -> None:
    api(cast.admin, "POST", f"{SECRETS}/scopes/create", {"scope": "s"})
    recorder = Recorder()

    record(Action.ENDPOINT_STOP, ObjectKind.ENDPOINT, "e")

    assert recorder.one().via == "system"
    assert recorder.one().request_id == ""


# ---------------------------------------------------------------- append-only, retention


def test_rows_are_never_changed() -> None:
    record(Action.LOGIN, ObjectKind.USER, "maria")
    row = AuditEvent.objects.get()

    row.actor = "somebody else"
    for change in (
        row.save,
        row.delete,
        lambda: AuditEvent.objects.update(actor="x"),
        AuditEvent.objects.all().delete,
    ):
        with pytest.raises(AppendOnly):
            change()
    with (
        pytest.raises(DatabaseError, match="rows of the audit log are not changed"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("UPDATE audit_auditevent SET actor = 'x'")

    assert AuditEvent.objects.get().actor == ""


def test_a_row_outlives_its_user() -> None:
    user: User = UserFactory(username="passing")
    record(Action.LOGIN, ObjectKind.USER, "passing", user=user)

    user.delete()

    assert AuditEvent.objects.get().actor == "passing"


@pytest.mark.parametrize(("days", "left"), [(30, 1), (0, 2)])
def test_old_rows_are_forgotten(
    settings: Any, monkeypatch: pytest.MonkeyPatch, days: int, left: int
) -> None:
    settings.AUDIT_DAYS = days
    past = timezone.now() - timedelta(days=31)
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "now", lambda: past)
        record(Action.LOGIN, ObjectKind.USER, "old", outcome=Outcome.FAILED)
    record(Action.LOGIN, ObjectKind.USER, "new")

    tasks.forget_old()

    assert AuditEvent.objects.count() == left
    assert AuditEvent.objects.filter(object_name="new").exists()
