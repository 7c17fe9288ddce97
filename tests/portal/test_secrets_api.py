"""Secret scopes over REST: the real SDK, every permission, bounds, encryption at rest."""

from __future__ import annotations

import base64
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk import errors as sdk_errors
from databricks.sdk.service.workspace import AclPermission, ScopeBackendType
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client, override_settings

from portal.secrets import encryption, services
from portal.secrets.models import Secret, SecretScope
from portal.secrets.services import keys, scopes
from portal.secrets.states import ScopePermission
from tests.support.factories import Cast, Person, UserFactory, make_cast
from tests.support.live_portal import LivePortal

VALUE = "correct-horse-battery-staple"
BASE = "/api/2.0/secrets"


def call(person: Person | None, method: str, path: str, **arguments: Any) -> tuple[int, Any]:
    client = Client(headers=person.headers if person else {})
    if method == "GET":
        answer = client.get(f"{BASE}/{path}", arguments)
    else:
        answer = client.post(f"{BASE}/{path}", json.dumps(arguments), "application/json")
    return answer.status_code, answer.json()


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def scope(cast: Cast) -> str:
    """A scope of the manager's, with one key, and each of the cast with their permission."""
    services.create_scope(cast.manager.user, "db")
    services.put_secret(cast.manager.user, "db", "password", VALUE.encode())
    services.put_acl(cast.manager.user, "db", "querier", ScopePermission.WRITE)
    services.put_acl(cast.manager.user, "db", "viewer", ScopePermission.READ)
    return "db"


# ---------------------------------------------------------------- the real SDK


def test_the_sdk_works_as_it_is(live_portal: LivePortal) -> None:
    client = WorkspaceClient(host=live_portal.url, token=live_portal.token("secret-keeper"))
    live_portal.token("secret-reader")

    client.secrets.create_scope("sdk-scope")
    client.secrets.put_secret("sdk-scope", "text", string_value=VALUE)
    client.secrets.put_secret(
        "sdk-scope", "bytes", bytes_value=base64.b64encode(b"\x00\xff").decode()
    )
    client.secrets.put_acl("sdk-scope", "secret-reader", AclPermission.READ)

    (found,) = [s for s in client.secrets.list_scopes() if s.name == "sdk-scope"]
    assert found.backend_type == ScopeBackendType.DATABRICKS
    listed = list(client.secrets.list_secrets("sdk-scope"))
    assert [secret.key for secret in listed] == ["bytes", "text"]
    assert all((secret.last_updated_timestamp or 0) > 1_600_000_000_000 for secret in listed)
    acls = {acl.principal: acl.permission for acl in client.secrets.list_acls("sdk-scope")}
    assert acls == {"secret-keeper": AclPermission.MANAGE, "secret-reader": AclPermission.READ}
    assert client.secrets.get_acl("sdk-scope", "secret-reader").permission == AclPermission.READ
    with pytest.raises(sdk_errors.PermissionDenied, match="never shown again"):
        client.secrets.get_secret("sdk-scope", "text")

    client.secrets.delete_acl("sdk-scope", "secret-reader")
    client.secrets.delete_secret("sdk-scope", "bytes")
    with pytest.raises(sdk_errors.ResourceDoesNotExist):
        client.secrets.delete_secret("sdk-scope", "bytes")
    with pytest.raises(sdk_errors.ResourceAlreadyExists):
        client.secrets.create_scope("sdk-scope")
    client.secrets.delete_scope("sdk-scope")
    with pytest.raises(sdk_errors.ResourceDoesNotExist):
        client.secrets.list_secrets("sdk-scope")


def test_no_value_is_in_the_database_s_files(live_portal: LivePortal) -> None:
    client = WorkspaceClient(host=live_portal.url, token=live_portal.token("secret-keeper"))
    client.secrets.create_scope("at-rest")
    client.secrets.put_secret("at-rest", "text", string_value=VALUE)

    kept = live_portal.row("SELECT encrypted FROM secrets_secret WHERE key = 'text'")

    needles = [VALUE.encode(), base64.b64encode(VALUE.encode()), VALUE.encode().hex().encode()]
    assert kept is not None
    for haystack in [bytes(kept[0]), *(f.read_bytes() for f in _files(live_portal.data))]:
        assert not any(needle in haystack for needle in needles)


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".sock"]


# ---------------------------------------------------------------- permissions

TABLE: list[tuple[str, str, dict[str, Any], tuple[int, ...]]] = [
    # call                    admin, manager, querier (WRITE), viewer (READ), stranger, nobody
    ("GET", "list", {"scope": "db"}, (200, 200, 200, 200, 404, 401)),
    ("GET", "get", {"scope": "db", "key": "password"}, (403, 403, 403, 403, 404, 401)),
    (
        "POST",
        "put",
        {"scope": "db", "key": "k", "string_value": "v"},
        (200, 200, 200, 403, 404, 401),
    ),
    ("POST", "delete", {"scope": "db", "key": "password"}, (200, 200, 200, 403, 404, 401)),
    ("GET", "acls/list", {"scope": "db"}, (200, 200, 403, 403, 404, 401)),
    ("GET", "acls/get", {"scope": "db", "principal": "viewer"}, (200, 200, 403, 403, 404, 401)),
    (
        "POST",
        "acls/put",
        {"scope": "db", "principal": "users", "permission": "READ"},
        (200, 200, 403, 403, 404, 401),
    ),
    (
        "POST",
        "acls/delete",
        {"scope": "db", "principal": "viewer"},
        (200, 200, 403, 403, 404, 401),
    ),
    ("POST", "scopes/delete", {"scope": "db"}, (200, 200, 403, 403, 404, 401)),
]
CAST = ("admin", "manager", "querier", "viewer", "stranger", "nobody")


@pytest.mark.django_db
@pytest.mark.parametrize("who", CAST)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[1])
def test_each_call_asks_for_its_permission(
    cast: Cast, scope: str, row: tuple[str, str, dict[str, Any], tuple[int, ...]], who: str
) -> None:
    method, path, arguments, expected = row

    status, body = call(getattr(cast, who, None), method, path, **arguments)

    assert status == expected[CAST.index(who)], body
    assert VALUE not in json.dumps(body)
    if status != 200:
        assert set(body) == {"error_code", "message", "details", "request_id"}


@pytest.mark.django_db
def test_scopes_are_listed_for_those_who_may_read_them(cast: Cast, scope: str) -> None:
    assert call(cast.viewer, "GET", "scopes/list")[1] == {
        "scopes": [{"name": "db", "backend_type": "DATABRICKS"}]
    }
    assert call(cast.stranger, "GET", "scopes/list")[1] == {"scopes": []}

    call(cast.manager, "POST", "acls/put", scope="db", principal="users", permission="READ")

    assert len(call(cast.stranger, "GET", "scopes/list")[1]["scopes"]) == 1


@pytest.mark.django_db
def test_scopes_are_listed_by_name(cast: Cast) -> None:
    for name in ("b", "c", "a"):
        services.create_scope(cast.manager.user, name)

    names = [scope["name"] for scope in call(cast.manager, "GET", "scopes/list")[1]["scopes"]]
    assert names == ["a", "b", "c"]


@pytest.mark.django_db
def test_everybody_may_manage_a_scope_that_is_created_so(cast: Cast) -> None:
    answer = call(
        cast.viewer, "POST", "scopes/create", scope="all", initial_manage_principal="users"
    )

    assert answer == (200, {})
    put = call(cast.stranger, "POST", "put", scope="all", key="k", string_value="v")
    assert put == (200, {})


# ---------------------------------------------------------------- bad input


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("scopes/create", {"scope": ""}),
        ("scopes/create", {"scope": "a/b"}),
        ("scopes/create", {"scope": ".."}),
        ("scopes/create", {"scope": "ü"}),
        ("scopes/create", {"scope": "x" * 129}),
        ("scopes/create", {"scope": 5}),
        ("scopes/create", {"scope": "x", "scope_backend_type": "AZURE_KEYVAULT"}),
        ("scopes/create", {"scope": "x", "initial_manage_principal": "admins"}),
        ("put", {}),
        ("put", {"key": "a b", "string_value": "v"}),
        ("put", {"key": "k", "string_value": ""}),
        ("put", {"key": "k", "string_value": 5}),
        ("put", {"key": "k", "string_value": "v", "bytes_value": "dg=="}),
        ("put", {"key": "k", "string_value": "v" * (128 * 1024 + 1)}),
        ("put", {"key": "k", "string_value": "ä" * (64 * 1024 + 1)}),
        ("put", {"key": "k", "bytes_value": "not base64!"}),
        ("acls/put", {"principal": "nobody-there", "permission": "READ"}),
        ("acls/put", {"principal": "viewer", "permission": "OWN"}),
    ],
)
def test_bad_input_is_a_400(cast: Cast, scope: str, path: str, change: dict[str, Any]) -> None:
    status, body = call(cast.manager, "POST", path, **{"scope": "db", **change})

    assert status == 400, body
    assert body["error_code"] in {"INVALID_PARAMETER_VALUE", "MALFORMED_REQUEST"}


@pytest.mark.django_db
def test_a_value_may_be_as_large_as_is_said(cast: Cast, scope: str) -> None:
    value = "v" * keys.MAX_VALUE_BYTES
    assert call(cast.manager, "POST", "put", scope="db", key="k", string_value=value)[0] == 200


@pytest.mark.django_db
def test_a_scope_and_the_workspace_are_full_some_day(
    cast: Cast, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MAX_KEYS", 1)
    monkeypatch.setattr(scopes, "MAX_SCOPES", 1)

    put = {"scope": "db", "string_value": "v"}
    assert call(cast.manager, "POST", "put", key="password", **put)[0] == 200
    status, body = call(cast.manager, "POST", "put", key="another", **put)
    assert (status, body["error_code"]) == (400, "INVALID_STATE")
    assert call(cast.manager, "POST", "scopes/create", scope="more")[0] == 400


@pytest.mark.django_db
@pytest.mark.parametrize("path", [row[1] for row in TABLE] + ["scopes/create", "scopes/list"])
def test_the_other_method_is_not_there(cast: Cast, path: str) -> None:
    method = "post" if path in {"list", "get", "acls/list", "acls/get", "scopes/list"} else "get"

    answer = getattr(Client(headers=cast.admin.headers), method)(f"{BASE}/{path}")

    assert answer.status_code == 404
    assert answer.json()["error_code"] == "ENDPOINT_NOT_FOUND"


@pytest.mark.django_db
def test_listing_takes_few_queries(
    cast: Cast, scope: str, django_assert_max_num_queries: Any
) -> None:
    for number in range(20):
        services.create_scope(cast.manager.user, f"s{number}")
        services.put_secret(cast.manager.user, "db", f"k{number}", b"v")

    with django_assert_max_num_queries(6):  # the token's and the user's groups among them
        assert len(call(cast.manager, "GET", "scopes/list")[1]["scopes"]) == 21
    with django_assert_max_num_queries(6):
        assert len(call(cast.manager, "GET", "list", scope="db")[1]["secrets"]) == 21


# ---------------------------------------------------------------- encryption


@pytest.mark.django_db
def test_the_row_does_not_hold_the_value(cast: Cast, scope: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT encrypted FROM secrets_secret")
        (kept,) = cursor.fetchone()

    assert VALUE.encode() not in bytes(kept)
    assert encryption.decrypt("db", "password", kept) == VALUE.encode()


@pytest.mark.django_db
def test_a_value_that_is_moved_to_another_row_does_not_decrypt(cast: Cast, scope: str) -> None:
    kept = Secret.objects.get().encrypted

    for place in (("db", "other"), ("other", "password")):
        with pytest.raises(encryption.CannotDecrypt):
            encryption.decrypt(*place, kept)


@pytest.mark.django_db
def test_a_key_can_be_replaced(cast: Cast, scope: str) -> None:
    with override_settings(SECRETS_KEYS=["new", "old"]):
        call_command("reencrypt_secrets", stdout=(out := StringIO()))
        assert out.getvalue() == "1 secrets are encrypted with the first key.\n"

    with override_settings(SECRETS_KEYS=["new"], SECRET_KEY="changed"):
        assert encryption.decrypt("db", "password", Secret.objects.get().encrypted)
    with (
        override_settings(SECRETS_KEYS=["other"], SECRET_KEY="changed"),
        pytest.raises(CommandError, match="db/password cannot be decrypted"),
    ):
        call_command("reencrypt_secrets")


@pytest.mark.django_db
def test_a_deleted_user_leaves_scopes_and_keys(cast: Cast, scope: str) -> None:
    user = UserFactory(username="passing")
    services.create_scope(user, "theirs")
    services.put_secret(user, "theirs", "k", b"v")

    user.delete()

    assert SecretScope.objects.get(name="theirs").created_by is None
    assert call(cast.admin, "GET", "list", scope="theirs")[0] == 200
