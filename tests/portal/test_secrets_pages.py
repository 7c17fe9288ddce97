"""The pages of secrets: no value is ever in one, and each button asks for its permission."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from portal.secrets import encryption, services
from portal.secrets.models import Secret, SecretScope
from portal.secrets.states import ScopePermission
from tests.support.factories import Cast, make_cast

pytestmark = pytest.mark.django_db

VALUE = "correct-horse-battery-staple"


@pytest.fixture
def cast() -> Cast:
    cast = make_cast()
    services.create_scope(cast.manager.user, "db")
    services.put_secret(cast.manager.user, "db", "password", VALUE.encode())
    services.put_acl(cast.manager.user, "db", "querier", ScopePermission.WRITE)
    services.put_acl(cast.manager.user, "db", "viewer", ScopePermission.READ)
    return cast


def as_user(cast: Cast, who: str) -> Client:
    client = Client()
    client.force_login(getattr(cast, who).user)
    return client


def test_a_scope_is_created_and_filled(cast: Cast) -> None:
    client = as_user(cast, "stranger")

    answer = client.post(reverse("secrets"), {"scope": "mine"}, follow=True)
    assert "mine" in answer.content.decode()
    url = reverse("secret-scope", args=["mine"])
    answer = client.post(url, {"key": "pem", "value": "line one\r\nline two"}, follow=True)

    page = answer.content.decode()
    assert "{{secrets/mine/pem}}" in page
    assert "line one" not in page
    kept = Secret.objects.get(key="pem")
    assert encryption.decrypt("mine", "pem", kept.encrypted) == b"line one\nline two"


def test_a_refused_value_is_not_sent_back(cast: Cast) -> None:
    client = as_user(cast, "manager")

    answer = client.post(reverse("secret-scope", args=["db"]), {"key": "not a key", "value": VALUE})

    assert answer.status_code == 400
    assert VALUE not in answer.content.decode()
    assert "is not a name" in answer.content.decode()


def test_a_taken_or_bad_name_is_said_at_its_field(cast: Cast) -> None:
    client = as_user(cast, "stranger")

    for name, words in (("db", "There is a secret scope"), ("a b", "is not a name")):
        answer = client.post(reverse("secrets"), {"scope": name})
        assert answer.status_code == 400
        assert words in answer.content.decode()
        assert 'aria-invalid="true"' in answer.content.decode()


@pytest.mark.parametrize("who", ["admin", "manager", "querier", "viewer"])
def test_who_may_see_a_scope_sees_keys_and_only_their_buttons(cast: Cast, who: str) -> None:
    page = as_user(cast, who).get(reverse("secret-scope", args=["db"])).content.decode()

    assert "password" in page
    assert VALUE not in page
    assert ("Add or replace a key" in page) == (who != "viewer")
    assert ("Give a permission" in page) == (who in {"admin", "manager"})
    assert ("Delete scope" in page) == (who in {"admin", "manager"})


PAGES = [
    ("secret-scope", ["db"], {"key": "k", "value": "v"}, {"querier": 302, "viewer": 403}),
    ("secret-delete", ["db", "password"], {}, {"querier": 302, "viewer": 403}),
    (
        "secret-acl",
        ["db"],
        {"principal": "users", "permission": "READ"},
        {"querier": 403, "viewer": 403},
    ),
    ("secret-acl-delete", ["db"], {"principal": "viewer"}, {"querier": 403, "viewer": 403}),
    ("secret-scope-delete", ["db"], {}, {"querier": 403, "viewer": 403}),
]


@pytest.mark.parametrize("who", ["admin", "manager", "querier", "viewer", "stranger", "nobody"])
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page[0])
def test_each_form_asks_for_its_permission(
    cast: Cast, page: tuple[str, list[str], dict[str, str], dict[str, int]], who: str
) -> None:
    name, arguments, form, expected = page
    client = Client() if who == "nobody" else as_user(cast, who)

    answer = client.post(reverse(name, args=arguments), form)

    others = {"admin": 302, "manager": 302, "stranger": 404, "nobody": 302}
    assert answer.status_code == (others | expected)[who]
    if who == "nobody":
        assert answer["Location"].startswith(reverse("login"))


def test_deleting_asks_first(cast: Cast) -> None:
    client = as_user(cast, "manager")

    asked = client.get(reverse("secret-scope-delete", args=["db"])).content.decode()
    assert "Its 1 keys" in asked
    assert client.get(reverse("secret-delete", args=["db", "password"])).status_code == 200
    assert SecretScope.objects.count() == 1

    client.post(reverse("secret-delete", args=["db", "password"]))
    assert not Secret.objects.exists()
    client.post(reverse("secret-scope-delete", args=["db"]))
    assert not SecretScope.objects.exists()


def test_giving_up_one_s_own_permission_leads_to_the_list(cast: Cast) -> None:
    client = as_user(cast, "manager")

    answer = client.post(reverse("secret-acl-delete", args=["db"]), {"principal": "manager"})

    assert answer["Location"] == reverse("secrets")


def test_an_unknown_principal_is_said_at_its_field(cast: Cast) -> None:
    client = as_user(cast, "manager")

    answer = client.post(
        reverse("secret-acl", args=["db"]), {"principal": "nobody-there", "permission": "READ"}
    )

    assert answer.status_code == 400
    assert "There is no user or group “nobody-there”." in answer.content.decode()


def test_the_settings_hub_links_here(cast: Cast) -> None:
    assert reverse("secrets") in as_user(cast, "viewer").get(reverse("settings")).content.decode()
