"""Logging in and out, and the admins' page of users."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from portal.accounts import services
from portal.accounts.models import ADMINS, FailedLogin, User
from portal.accounts.throttling import MOST_FOR_A_NAME, WINDOW
from tests.support.factories import AdminFactory, UserFactory

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse"


@pytest.fixture
def user() -> User:
    return UserFactory(username="maria")


@pytest.fixture
def admin_client() -> Client:
    client = Client()
    client.force_login(AdminFactory(username="root"))
    return client


def log_in(client: Client, username: str, password: str) -> int:
    answer = client.post(reverse("login"), {"username": username, "password": password})
    return answer.status_code


# ---------------------------------------------------------------- logging in


def test_a_user_logs_in_and_out(client: Client, user: User) -> None:
    answer = client.post(reverse("login"), {"username": "maria", "password": PASSWORD})
    assert answer.status_code == 302
    assert answer["Location"] == reverse("endpoints")
    assert client.get(reverse("settings")).status_code == 200

    answer = client.post(reverse("logout"))
    assert answer["Location"] == reverse("login")
    assert client.get(reverse("settings")).status_code == 302


def test_a_session_is_new_at_login_hidden_from_scripts_and_gone_at_logout(
    client: Client, user: User
) -> None:
    planted = client.session  # as somebody else might have set it
    planted["probe"] = 1
    planted.save()

    log_in(client, user.username, PASSWORD)
    cookie = client.cookies["sessionid"]
    left = client.post(reverse("logout"))
    kept = Client()
    kept.cookies["sessionid"] = cookie.value

    assert cookie.value != planted.session_key
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert left.headers["Clear-Site-Data"] == '"cache"'
    assert kept.get(reverse("settings")).status_code == 302


def test_logging_in_leads_back_to_the_page_that_was_asked_for(client: Client, user: User) -> None:
    target = reverse("models")

    answer = client.post(
        reverse("login"), {"username": "maria", "password": PASSWORD, "next": target}
    )

    assert answer["Location"] == target


def test_logging_in_leads_to_no_other_host(client: Client, user: User) -> None:
    there = {"username": "maria", "password": PASSWORD, "next": "https://evil.example/"}

    answer = client.post(reverse("login"), there)

    assert answer["Location"] == reverse("endpoints")


def test_a_wrong_password_is_refused_in_words(client: Client, user: User) -> None:
    answer = client.post(reverse("login"), {"username": "maria", "password": "wrong"})

    assert answer.status_code == 200
    assert b"correct username and password" in answer.content


def test_logout_needs_a_post(client: Client, user: User) -> None:
    client.force_login(user)

    assert client.get(reverse("logout")).status_code == 405
    assert client.get(reverse("settings")).status_code == 200


def test_too_many_failed_logins_make_the_next_one_wait(client: Client, user: User) -> None:
    for _ in range(MOST_FOR_A_NAME):
        assert log_in(client, "maria", "wrong") == 200

    answer = client.post(reverse("login"), {"username": "maria", "password": PASSWORD})

    assert answer.status_code == 429
    assert b"Too many failed logins. Wait" in answer.content


def test_the_wait_is_for_one_name_and_one_address(client: Client, user: User) -> None:
    UserFactory(username="jo")
    for _ in range(MOST_FOR_A_NAME):
        log_in(client, "maria", "wrong")

    assert log_in(client, "jo", PASSWORD) == 302
    elsewhere = Client(REMOTE_ADDR="10.0.0.9")
    assert log_in(elsewhere, "maria", PASSWORD) == 302


def test_the_wait_ends(client: Client, user: User) -> None:
    for _ in range(MOST_FOR_A_NAME):
        log_in(client, "maria", "wrong")
    oldest = FailedLogin.objects.order_by("at").first()
    assert oldest is not None
    oldest.at -= WINDOW
    oldest.save()

    assert log_in(client, "maria", PASSWORD) == 302


def test_a_login_that_works_clears_the_count(client: Client, user: User) -> None:
    for _ in range(MOST_FOR_A_NAME - 1):
        log_in(client, "maria", "wrong")
    log_in(client, "maria", PASSWORD)
    client.post(reverse("logout"))

    assert log_in(client, "maria", "wrong") == 200
    assert log_in(client, "maria", PASSWORD) == 302


def test_a_user_changes_the_password(client: Client, user: User) -> None:
    client.force_login(user)
    new = "a better battery staple"

    answer = client.post(
        reverse("password"),
        {"old_password": PASSWORD, "new_password1": new, "new_password2": new},
    )

    assert answer.status_code == 302
    assert log_in(Client(), "maria", new) == 302


# ---------------------------------------------------------------- the first admin


def test_the_first_start_makes_an_admin_once() -> None:
    admin, password = services.ensure_admin(None)
    again, nothing = services.ensure_admin("other")

    assert admin.is_workspace_admin
    assert password is not None
    assert admin.check_password(password)
    assert again == admin
    assert nothing is None


def test_the_first_admins_password_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_ADMIN_PASSWORD", "given by the operator")
    out = StringIO()

    call_command("ensure_admin", stdout=out)

    assert out.getvalue() == "user admin, password given by the operator\n"
    assert User.objects.get(username="admin").check_password("given by the operator")


# ---------------------------------------------------------------- users


def test_an_admin_creates_a_user_with_a_password_shown_once(admin_client: Client) -> None:
    answer = admin_client.post(reverse("user-create"), {"username": "jo", "email": ""})

    found = re.search(r'class="secret"><code>([^<]+)</code>', answer.content.decode())
    assert found is not None
    assert log_in(Client(), "jo", found[1]) == 302
    jo = User.objects.get(username="jo")
    assert not jo.is_workspace_admin
    assert found[1] not in admin_client.get(reverse("user", args=[jo.pk])).content.decode()
    assert answer["Cache-Control"].startswith("max-age=0, no-cache, no-store")


def test_a_taken_name_is_refused_at_its_field(admin_client: Client, user: User) -> None:
    answer = admin_client.post(reverse("user-create"), {"username": "maria"})

    page = answer.content.decode()
    assert "A user with that username already exists." in page
    assert 'aria-invalid="true"' in page
    assert 'id="id_username_error"' in page


def test_an_admin_makes_another_admin_and_takes_it_back(admin_client: Client, user: User) -> None:
    url = reverse("user-admin", args=[user.pk])

    admin_client.post(url, {"is_admin": "true"})
    assert User.objects.get(pk=user.pk).is_workspace_admin

    admin_client.post(url, {"is_admin": "false"})
    assert not User.objects.get(pk=user.pk).is_workspace_admin


def test_the_last_admin_stays(admin_client: Client) -> None:
    root = User.objects.get(username="root")

    admin_client.post(reverse("user-admin", args=[root.pk]), {"is_admin": "false"})
    answer = admin_client.post(reverse("user-deactivate", args=[root.pk]), follow=True)

    root.refresh_from_db()
    assert root.is_active
    assert root.groups.filter(name=ADMINS).exists()
    assert b"root is the only admin. Make another user an admin first." in answer.content


def test_a_deactivated_user_cannot_log_in_until_activated(admin_client: Client, user: User) -> None:
    url = reverse("user-deactivate", args=[user.pk])
    assert b"Deactivate maria?" in admin_client.get(url).content
    assert log_in(Client(), "maria", PASSWORD) == 302

    admin_client.post(url)
    assert log_in(Client(), "maria", PASSWORD) == 200

    admin_client.post(reverse("user-activate", args=[user.pk]))
    assert log_in(Client(), "maria", PASSWORD) == 302


def test_a_deactivated_user_is_logged_out(admin_client: Client, user: User) -> None:
    theirs = Client()
    theirs.force_login(user)

    admin_client.post(reverse("user-deactivate", args=[user.pk]))

    assert theirs.get(reverse("settings")).status_code == 302


def test_a_reset_password_ends_the_sessions(admin_client: Client, user: User) -> None:
    theirs = Client()
    theirs.force_login(user)

    answer = admin_client.post(reverse("user-password", args=[user.pk]))

    found = re.search(r'class="secret"><code>([^<]+)</code>', answer.content.decode())
    assert found is not None
    assert theirs.get(reverse("settings")).status_code == 302
    assert log_in(Client(), "maria", PASSWORD) == 200
    assert log_in(Client(), "maria", found[1]) == 302


USER_PAGES = [
    ("users", False),
    ("user-create", False),
    ("user", True),
    ("user-admin", True),
    ("user-activate", True),
    ("user-deactivate", True),
    ("user-password", True),
]


@pytest.mark.parametrize(("name", "takes_user"), USER_PAGES)
def test_pages_of_users_are_for_admins(
    client: Client, user: User, name: str, takes_user: bool
) -> None:
    url = reverse(name, args=[user.pk] if takes_user else [])
    method = client.post if name in {"user-admin", "user-activate"} else client.get

    assert method(url)["Location"].startswith(reverse("login"))
    client.force_login(user)
    answer = method(url)
    assert answer.status_code == 403
    assert b"Only workspace admins may do this." in answer.content


def test_the_users_page_lists_everybody_in_few_queries(
    admin_client: Client, django_assert_max_num_queries: object
) -> None:
    UserFactory.create_batch(12)

    with django_assert_max_num_queries(6):  # type: ignore[operator]  # a fixture without types
        page = admin_client.get(reverse("users")).content.decode()

    assert page.count('<th scope="row">') == 13
    assert "Workspace admin" in page
