"""Personal access tokens: pages, REST, the gateway's principals, last use."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
import redis
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal import bus
from portal.accounts import services
from portal.accounts.authentication import sha256
from portal.accounts.models import PersonalAccessToken, User
from portal.accounts.tasks import record_token_use
from serving.bus import PRINCIPALS, TOKEN_USE
from serving.spec import Principal, from_json
from tests.support.factories import AdminFactory, UserFactory

pytestmark = pytest.mark.django_db

Commit = Callable[..., AbstractContextManager[list[Any]]]


@pytest.fixture
def user() -> User:
    return UserFactory(username="maria")


@pytest.fixture
def page(client: Client, user: User) -> Client:
    client.force_login(user)
    return client


@pytest.fixture
def commit(django_capture_on_commit_callbacks: Commit) -> Commit:
    return django_capture_on_commit_callbacks


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def send_form(page: Client, **fields: str) -> str:
    """Open the page, fill its form in, send it; the answer's text."""
    form = page.get(reverse("tokens")).content.decode()
    form_id = re.search(r'name="form_id" value="([0-9a-f]+)"', form)
    assert form_id is not None
    wanted = {"form_id": form_id[1], "comment": "", "lifetime": "0"} | fields
    return page.post(reverse("tokens"), wanted).content.decode()


def shown_value(answer: str) -> str:
    found = re.search(r'id="token-value">(shoal-[^<]+)<', answer)
    assert found is not None
    return found[1]


# ---------------------------------------------------------------- the page


def test_the_page_creates_a_token_and_shows_it_once(page: Client, user: User) -> None:
    value = shown_value(send_form(page, comment="notebook", lifetime=str(30 * 86400)))

    assert page.get("/api/2.0/token/list", headers=bearer(value)).status_code == 200
    listing = page.get(reverse("tokens")).content.decode()
    assert "notebook" in listing
    assert value not in listing


def test_only_the_hash_of_a_token_is_kept(page: Client, user: User) -> None:
    value = shown_value(send_form(page))

    row = PersonalAccessToken.objects.filter(user=user).values().get()
    assert row["sha256"] == sha256(value)
    assert value not in str(row)
    assert value.removeprefix("shoal-") not in str(row)


def test_sending_the_form_again_makes_no_second_token(page: Client, user: User) -> None:
    wanted = {"form_id": services.new_public_id(), "comment": "", "lifetime": "0"}
    page.post(reverse("tokens"), wanted)

    answer = page.post(reverse("tokens"), wanted, follow=True)

    assert b"its value is not shown again" in answer.content
    assert user.tokens.count() == 1


def test_the_answer_with_a_token_is_not_cached(page: Client) -> None:
    wanted = {"form_id": services.new_public_id(), "comment": "", "lifetime": "0"}

    answer = page.post(reverse("tokens"), wanted)

    assert "no-store" in answer["Cache-Control"]


def test_a_long_comment_is_refused_at_its_field(page: Client, user: User) -> None:
    answer = send_form(page, comment="x" * 257)

    assert 'id="id_comment_error"' in answer
    assert 'aria-invalid="true"' in answer
    assert not user.tokens.exists()


def test_a_token_is_revoked_after_a_question(page: Client, user: User) -> None:
    token, value = services.create_token(user, comment="old laptop")
    url = reverse("token-revoke", args=[token.public_id])

    question = page.get(url).content.decode()
    assert "old laptop" in question
    assert page.get("/api/2.0/token/list", headers=bearer(value)).status_code == 200

    assert page.post(url)["Location"] == reverse("tokens")
    assert page.get("/api/2.0/token/list", headers=bearer(value)).status_code == 401
    assert "old laptop" not in page.get(reverse("tokens")).content.decode()
    assert page.post(url)["Location"] == reverse("tokens")


def test_a_stranger_cannot_revoke_a_token_but_an_admin_can(client: Client, user: User) -> None:
    token, _ = services.create_token(user)
    url = reverse("token-revoke", args=[token.public_id])

    client.force_login(UserFactory())
    assert client.get(url).status_code == 404
    client.post(url)
    token.refresh_from_db()
    assert token.revoked_at is None

    client.force_login(AdminFactory())
    client.post(url)
    token.refresh_from_db()
    assert token.revoked_at is not None


# ---------------------------------------------------------------- REST


def test_the_api_creates_lists_and_deletes_tokens(client: Client, user: User) -> None:
    _, first = services.create_token(user, comment="first")

    created = client.post(
        "/api/2.0/token/create",
        {"comment": "second", "lifetime_seconds": 3600},
        content_type="application/json",
        headers=bearer(first),
    ).json()
    info = created["token_info"]
    assert info["comment"] == "second"
    assert info["expiry_time"] - info["creation_time"] == pytest.approx(3_600_000, abs=2000)

    second = bearer(created["token_value"])
    listed = client.get("/api/2.0/token/list", headers=second)
    assert {t["comment"] for t in listed.json()["token_infos"]} == {"first", "second"}
    assert created["token_value"] not in listed.content.decode()

    deletion = {"token_id": info["token_id"]}
    deleted = client.post(
        "/api/2.0/token/delete", deletion, content_type="application/json", headers=second
    )
    assert (deleted.status_code, deleted.json()) == (200, {})
    assert client.get("/api/2.0/token/list", headers=second).status_code == 401

    again = client.post(
        "/api/2.0/token/delete", deletion, content_type="application/json", headers=bearer(first)
    )
    assert again.status_code == 404
    assert again.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"


def test_a_token_without_lifetime_has_expiry_minus_one(client: Client, user: User) -> None:
    _, value = services.create_token(user)

    body = client.post(
        "/api/2.0/token/create",
        {"scopes": ["all"], "autoscope_enabled": False},
        content_type="application/json",
        headers=bearer(value),
    ).json()

    assert body["token_info"]["expiry_time"] == -1
    assert body["token_info"]["comment"] == ""


@pytest.mark.parametrize(
    "body",
    [
        {"comment": 5 * ["x"]},
        {"comment": "x" * 257},
        {"lifetime_seconds": "3600"},
        {"lifetime_seconds": True},
        {"lifetime_seconds": 0},
        {"lifetime_seconds": -5},
        {"lifetime_seconds": 10**12},
        {"lifetime_seconds": 1.5},
    ],
)
def test_a_wrong_wish_for_a_token_is_a_400(client: Client, user: User, body: object) -> None:
    _, value = services.create_token(user)

    answer = client.post(
        "/api/2.0/token/create", body, content_type="application/json", headers=bearer(value)
    )

    assert answer.status_code == 400
    assert answer.json()["error_code"] == "INVALID_PARAMETER_VALUE"
    assert user.tokens.count() == 1


@pytest.mark.parametrize("value", ["", "shoal-unknown"])
def test_no_token_and_a_wrong_one_are_401(client: Client, value: str) -> None:
    answer = client.get("/api/2.0/token/list", headers=bearer(value) if value else {})

    assert answer.status_code == 401
    assert answer.json()["error_code"] == "UNAUTHENTICATED"


def test_a_session_does_not_open_the_api(page: Client) -> None:
    assert page.get("/api/2.0/token/list").status_code == 401


def test_an_expired_token_is_refused(client: Client, user: User) -> None:
    token, value = services.create_token(user, lifetime_s=3600)
    token.expires_at = timezone.now() - timedelta(seconds=1)
    token.save()

    assert client.get("/api/2.0/token/list", headers=bearer(value)).status_code == 401


def test_a_deactivated_users_token_is_refused(client: Client, user: User) -> None:
    AdminFactory()
    _, value = services.create_token(user)

    services.set_active(user, is_active=False)

    assert client.get("/api/2.0/token/list", headers=bearer(value)).status_code == 401


def test_me_is_the_tokens_user(client: Client) -> None:
    admin = AdminFactory(username="root", groups=["users"])
    _, value = services.create_token(admin)

    body = client.get("/api/2.0/preview/scim/v2/Me", headers=bearer(value)).json()

    assert body["id"] == str(admin.pk)
    assert body["userName"] == "root"
    assert body["active"] is True
    assert [g["display"] for g in body["groups"]] == ["admins", "users"]
    assert body["emails"][0]["primary"] is True
    assert body["schemas"] == ["urn:ietf:params:scim:schemas:core:2.0:User"]


# ---------------------------------------------------------------- the command


def test_the_command_prints_a_token_and_nothing_else(client: Client, user: User) -> None:
    out = StringIO()

    call_command("create_token", "maria", "--comment", "ci", stdout=out)

    value = out.getvalue().removesuffix("\n")
    assert re.fullmatch(r"shoal-[\w-]{43}", value)
    assert client.get("/api/2.0/token/list", headers=bearer(value)).status_code == 200
    assert user.tokens.get().comment == "ci"


def test_the_command_refuses_an_unknown_user() -> None:
    with pytest.raises(CommandError, match="There is no active user nobody"):
        call_command("create_token", "nobody")


# ---------------------------------------------------------------- principals


def principal(valkey: redis.Redis, token: PersonalAccessToken) -> Principal | None:
    found = valkey.hget(PRINCIPALS, token.sha256)
    return None if found is None else from_json(Principal, str(found))


def test_a_new_token_is_published(valkey: redis.Redis, user: User, commit: Commit) -> None:
    with commit(execute=True):
        token, _ = services.create_token(user, lifetime_s=60)

    found = principal(valkey, token)
    assert token.expires_at is not None
    assert found == Principal(
        user_id=str(user.pk),
        user_name="maria",
        is_admin=False,
        groups=("users",),
        expires_at=token.expires_at.timestamp(),
    )


def test_a_revoked_token_is_withdrawn(valkey: redis.Redis, user: User, commit: Commit) -> None:
    with commit(execute=True):
        token, _ = services.create_token(user)
    assert principal(valkey, token) is not None

    with commit(execute=True):
        services.revoke_token(token)

    assert principal(valkey, token) is None


def test_gateways_are_told_of_a_change(valkey: redis.Redis, user: User, commit: Commit) -> None:
    listener = valkey.pubsub()  # type: ignore[no-untyped-call]  # redis has no type for it
    listener.subscribe("shoal:changes")
    listener.get_message(timeout=2)

    with commit(execute=True):
        token, _ = services.create_token(user)

    message = listener.get_message(timeout=2)
    assert message is not None
    assert message["data"] == f"principal:{token.sha256}"
    listener.close()


def test_a_deactivated_users_tokens_are_withdrawn_and_come_back(
    valkey: redis.Redis, user: User, commit: Commit
) -> None:
    AdminFactory()
    with commit(execute=True):
        token, _ = services.create_token(user)

    with commit(execute=True):
        services.set_active(user, is_active=False)
    assert principal(valkey, token) is None

    with commit(execute=True):
        services.set_active(user, is_active=True)
    assert principal(valkey, token) is not None


def test_a_new_admins_tokens_say_so(valkey: redis.Redis, user: User, commit: Commit) -> None:
    AdminFactory()
    with commit(execute=True):
        token, _ = services.create_token(user)

    with commit(execute=True):
        services.set_admin(user, is_admin=True)
    found = principal(valkey, token)
    assert found is not None
    assert found.is_admin
    assert found.groups == ("admins", "users")

    with commit(execute=True):
        services.set_admin(user, is_admin=False)
    found = principal(valkey, token)
    assert found is not None
    assert not found.is_admin


def test_all_principals_are_the_usable_tokens(
    user: User, django_assert_max_num_queries: Any
) -> None:
    wanted = {services.create_token(user)[0].sha256 for _ in range(5)}
    revoked, _ = services.create_token(user)
    services.revoke_token(revoked)
    expired, _ = services.create_token(user, lifetime_s=5)
    PersonalAccessToken.objects.filter(pk=expired.pk).update(expires_at=timezone.now())
    services.create_token(UserFactory(is_active=False))

    with django_assert_max_num_queries(2):
        assert set(services.all_principals()) == wanted


# ---------------------------------------------------------------- last use


def test_the_api_notes_a_tokens_use_sparingly(
    client: Client, user: User, django_assert_max_num_queries: Any
) -> None:
    token, value = services.create_token(user)

    client.get("/api/2.0/token/list", headers=bearer(value))
    token.refresh_from_db()
    first = token.last_used_at
    assert first is not None

    with django_assert_max_num_queries(2):
        client.get("/api/2.0/token/list", headers=bearer(value))
    token.refresh_from_db()
    assert token.last_used_at == first


def test_what_gateways_noted_reaches_the_rows(valkey: redis.Redis, user: User) -> None:
    used, _ = services.create_token(user)
    newer, _ = services.create_token(user)
    now = timezone.now()
    PersonalAccessToken.objects.filter(pk=newer.pk).update(last_used_at=now)
    hour_ago = (now - timedelta(hours=1)).timestamp()
    valkey.hset(
        TOKEN_USE, mapping={used.sha256: hour_ago, newer.sha256: hour_ago, "0" * 64: hour_ago}
    )

    record_token_use()
    record_token_use()

    used.refresh_from_db()
    newer.refresh_from_db()
    assert used.last_used_at == datetime.fromtimestamp(hour_ago, tz=UTC)
    assert newer.last_used_at == now
    assert valkey.hexists(TOKEN_USE, used.sha256)
    assert not valkey.hexists(TOKEN_USE, "0" * 64)


def test_a_token_is_made_while_redis_is_away(
    user: User, commit: Commit, settings: Any, client: Client
) -> None:
    bus.client.cache_clear()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    try:
        with commit(execute=True):
            _, value = services.create_token(user)
    finally:
        bus.client.cache_clear()

    assert client.get("/api/2.0/token/list", headers=bearer(value)).status_code == 200
