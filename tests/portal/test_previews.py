"""The one preview: who turns it on and off, and where."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from portal.accounts.models import User
from portal.accounts.services import create_token
from portal.previews import services
from portal.rest import PermissionDenied, ResourceDoesNotExist
from tests.support.factories import AdminFactory, UserFactory

pytestmark = pytest.mark.django_db

NAME = "throughput_optimized"
URL = f"/api/2.0/previews/{NAME}"


@pytest.fixture
def admin() -> User:
    return AdminFactory(username="root")


@pytest.fixture
def user() -> User:
    return UserFactory(username="maria")


def bearer(user: User | None) -> dict[str, str]:
    return {} if user is None else {"Authorization": f"Bearer {create_token(user)[1]}"}


def patch(client: Client, user: User | None, body: Any, url: str = URL) -> Any:
    return client.patch(url, body, content_type="application/json", headers=bearer(user))


# ---------------------------------------------------------------- the page


def test_the_preview_is_off_by_default(client: Client, user: User) -> None:
    client.force_login(user)

    page = client.get(reverse("previews")).content.decode()

    assert not services.is_enabled()
    assert "Throughput optimized serving (Triton)" in page
    assert 'aria-checked="false"' in page


def test_an_admin_turns_it_on_and_off(client: Client, admin: User) -> None:
    client.force_login(admin)
    url = reverse("preview-set", args=[NAME])

    answer = client.post(url, {"enabled": "true"}, follow=True)
    assert services.is_enabled()
    page = answer.content.decode()
    assert 'aria-checked="true"' in page
    assert "Turned on by root" in page

    client.post(url, {"enabled": "false"})
    assert not services.is_enabled()


def test_turning_on_twice_keeps_who_did_it_first(admin: User) -> None:
    first = services.set_enabled(NAME, True, admin)
    second = services.set_enabled(NAME, True, AdminFactory())

    assert second == first


def test_the_page_says_what_turning_it_off_does(client: Client, admin: User) -> None:
    client.force_login(admin)

    page = client.get(reverse("previews")).content.decode()

    assert "Turning it off leaves running deployments as they are." in page
    assert "The next deploy of an endpoint drops Triton" in page


def test_others_see_it_read_only_and_why(client: Client, user: User) -> None:
    client.force_login(user)

    page = client.get(reverse("previews")).content.decode()
    assert "Only workspace admins turn previews on and off." in page
    assert reverse("preview-set", args=[NAME]) not in page

    answer = client.post(reverse("preview-set", args=[NAME]), {"enabled": "true"})
    assert answer.status_code == 403
    assert not services.is_enabled()


def test_the_form_takes_posts_only(client: Client, admin: User) -> None:
    client.force_login(admin)

    assert client.get(reverse("preview-set", args=[NAME])).status_code == 405
    assert client.post(reverse("preview-set", args=["nope"])).status_code == 404


# ---------------------------------------------------------------- REST


@pytest.mark.parametrize(
    ("who", "read", "write"), [("nobody", 401, 401), ("user", 200, 403), ("admin", 200, 200)]
)
def test_the_api_asks_for_permission(
    client: Client, admin: User, user: User, who: str, read: int, write: int
) -> None:
    caller = {"nobody": None, "user": user, "admin": admin}[who]

    assert client.get("/api/2.0/previews", headers=bearer(caller)).status_code == read
    assert client.get(URL, headers=bearer(caller)).status_code == read
    answer = patch(client, caller, {"enabled": True})
    assert answer.status_code == write
    assert services.is_enabled() == (write == 200)
    if write != 200:
        assert set(answer.json()) == {"error_code", "message", "details", "request_id"}


def test_the_api_tells_the_state(client: Client, admin: User) -> None:
    body = patch(client, admin, {"enabled": True}).json()

    assert body["enabled"] is True
    assert body["changed_by"] == "root"
    assert body["stage"] == "Beta"
    listed = client.get("/api/2.0/previews", headers=bearer(admin)).json()
    assert listed == {"previews": [body]}


@pytest.mark.parametrize(
    "body", [{}, {"enabled": "true"}, {"enabled": 1}, {"enabled": None}, {"enabled": []}]
)
def test_enabled_must_be_a_boolean(client: Client, admin: User, body: Any) -> None:
    answer = patch(client, admin, body)

    assert answer.status_code == 400
    assert answer.json()["error_code"] == "INVALID_PARAMETER_VALUE"
    assert "enabled" in answer.json()["message"]
    assert not services.is_enabled()


def test_an_unknown_preview_is_a_404(client: Client, admin: User) -> None:
    answer = patch(client, admin, {"enabled": True}, "/api/2.0/previews/nope")

    assert answer.status_code == 404
    assert answer.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"


# ---------------------------------------------------------------- services and command


def test_the_service_refuses_others(user: User) -> None:
    with pytest.raises(PermissionDenied):
        services.set_enabled(NAME, True, user)
    with pytest.raises(ResourceDoesNotExist):
        services.set_enabled("nope", True, None)


def test_the_command_turns_it_on_and_off() -> None:
    out = StringIO()

    call_command("preview", NAME, "on", stdout=out)
    assert services.is_enabled()
    assert out.getvalue() == "Throughput optimized serving (Triton): on\n"

    call_command("preview", NAME, "off", stdout=out)
    assert not services.is_enabled()


def test_the_command_refuses_an_unknown_preview() -> None:
    with pytest.raises(CommandError, match="There is no preview nope"):
        call_command("preview", "nope", "on")
