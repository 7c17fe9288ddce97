"""The audit log as admins read it: page, filters, CSV, REST."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.audit.models import AuditEvent
from portal.audit.services import Action, ObjectKind, Outcome, record
from tests.support.factories import Cast, UserFactory, make_cast

pytestmark = pytest.mark.django_db

API = "/api/2.0/audit-logs"


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def admin(cast: Cast) -> Client:
    client = Client()
    client.force_login(cast.admin.user)
    return client


@pytest.fixture
def rows(cast: Cast) -> None:
    """Three acts of maria's."""
    maria = UserFactory(username="maria")
    record(Action.ENDPOINT_CREATE, ObjectKind.ENDPOINT, "detector", user=maria, config_version=1)
    record(Action.ENDPOINT_STOP, ObjectKind.ENDPOINT, "classifier", user=maria)
    record(Action.LOGIN, ObjectKind.USER, "maria", user=maria, outcome=Outcome.FAILED)


def ask(person: Any, **query: Any) -> tuple[int, dict[str, Any]]:
    answer = Client(headers=person.headers if person else {}).get(API, query)
    return answer.status_code, answer.json()


# ---------------------------------------------------------------- who


@pytest.mark.parametrize("name", ["audit", "audit-download"])
def test_the_page_is_for_admins(cast: Cast, admin: Client, name: str) -> None:
    others = Client()
    assert others.get(reverse(name)).status_code == 302
    others.force_login(cast.manager.user)
    assert others.get(reverse(name)).status_code == 403
    assert admin.get(reverse(name)).status_code == 200
    assert admin.post(reverse(name)).status_code == 405


def test_only_admins_find_the_link(cast: Cast, admin: Client) -> None:
    others = Client()
    others.force_login(cast.viewer.user)

    assert reverse("audit") in admin.get(reverse("settings")).content.decode()
    assert reverse("audit") not in others.get(reverse("settings")).content.decode()


@pytest.mark.parametrize(
    ("who", "status"), [("admin", 200), ("manager", 403), ("stranger", 403), ("nobody", 401)]
)
def test_the_api_is_for_admins(cast: Cast, who: str, status: int) -> None:
    found, body = ask(getattr(cast, who, None))

    assert found == status
    if status != 200:
        assert set(body) == {"error_code", "message", "details", "request_id"}


# ---------------------------------------------------------------- the page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("actor=maria", {"detector", "classifier", "maria"}),
        ("actor=maria&action=endpoint.stop", {"classifier"}),
        ("actor=maria&kind=user", {"maria"}),
        ("object=tect", {"detector"}),
        ("object=tect&action=endpoint.stop", set()),
        ("actor=maria&since=2020-01-01", {"detector", "classifier", "maria"}),
        ("actor=maria&until=2020-01-01", set()),
    ],
)
@pytest.mark.usefixtures("rows")
def test_filters(admin: Client, query: str, found: set[str]) -> None:
    page = admin.get(f"{reverse('audit')}?{query}")

    assert {row["event"].object_name for row in page.context["rows"]} == found
    assert ("Nothing matches" in page.content.decode()) == (not found)


@pytest.mark.usefixtures("rows")
def test_today_is_within_its_own_day(admin: Client) -> None:
    today = f"{datetime.now(UTC):%Y-%m-%d}"

    page = admin.get(f"{reverse('audit')}?actor=maria&since={today}&until={today}")

    assert len(page.context["rows"]) == 3


@pytest.mark.parametrize("query", ["since=yesterday", "until=2026-02-31", "action=x", "kind=x"])
def test_a_filter_that_cannot_be_read_is_said(admin: Client, query: str) -> None:
    page = admin.get(f"{reverse('audit')}?{query}")

    assert page.status_code == 200
    assert 'role="alert"' in page.content.decode()


@pytest.mark.parametrize("before", ["x", "-1", "9" * 30, "²"])
def test_a_cursor_that_is_none_shows_the_beginning(admin: Client, before: str) -> None:
    assert admin.get(reverse("audit"), {"before": before}).status_code == 200


def test_pages_neither_repeat_nor_leave_out(admin: Client) -> None:
    for number in range(120):
        record(Action.LOGIN, ObjectKind.USER, f"user{number}")
    url, seen = f"{reverse('audit')}?action=login", []
    while url:
        page = admin.get(url)
        seen += [row["event"].object_name for row in page.context["rows"]]
        record(Action.LOGIN, ObjectKind.USER, "meanwhile")
        url = f"?{page.context['older']}" if page.context["older"] else ""
        url = url and reverse("audit") + url

    assert seen == [f"user{number}" for number in reversed(range(120))]


@pytest.mark.usefixtures("rows")
def test_what_a_row_says_is_escaped(admin: Client) -> None:
    record(Action.LOGIN, ObjectKind.USER, "<script>alert(1)</script>", note="<b>")

    page = admin.get(reverse("audit")).content.decode()

    assert "<script>alert(1)" not in page
    assert "<b>" not in page


def test_the_page_takes_few_queries(admin: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(60):
        record(Action.LOGIN, ObjectKind.USER, f"user{number}")

    with django_assert_max_num_queries(4):  # session, user, groups, rows
        admin.get(reverse("audit"))


# ---------------------------------------------------------------- CSV


@pytest.mark.usefixtures("rows")
def test_csv_holds_what_the_filter_finds(admin: Client) -> None:
    answer = admin.get(f"{reverse('audit-download')}?actor=maria&kind=endpoint")

    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"].startswith('attachment; filename="audit-2')
    head, *found = csv.reader(io.StringIO(answer.content.decode()))
    assert [row[head.index("object_name")] for row in found] == ["classifier", "detector"]
    assert found[1][head.index("detail")] == '{"config_version": 1}'


def test_csv_begins_no_formula(admin: Client) -> None:
    record(Action.LOGIN, ObjectKind.USER, "=1+1")

    assert "'=1+1" in admin.get(reverse("audit-download")).content.decode()


# ---------------------------------------------------------------- REST


@pytest.mark.usefixtures("rows")
def test_the_api_tells_all_of_a_row(cast: Cast) -> None:
    _, body = ask(cast.admin, actor="maria", action="endpoint.create")

    (event,) = body["events"]
    row = AuditEvent.objects.get(action="endpoint.create")
    assert event == {
        "id": row.pk,
        "timestamp": int(row.at.timestamp() * 1000),
        "actor": "maria",
        "via": "system",
        "token_id": None,
        "address": None,
        "request_id": None,
        "action": "endpoint.create",
        "object_kind": "endpoint",
        "object_name": "detector",
        "outcome": "done",
        "detail": {"config_version": 1},
    }


@pytest.mark.usefixtures("rows")
def test_the_api_pages(cast: Cast) -> None:
    query, seen = {"actor": "maria", "max_results": 2}, []
    while True:
        status, body = ask(cast.admin, **query)
        assert status == 200
        seen += [event["object_name"] for event in body["events"]]
        if "next_page_token" not in body:
            break
        query["page_token"] = body["next_page_token"]

    assert seen == ["maria", "classifier", "detector"]


@pytest.mark.usefixtures("rows")
def test_the_api_filters_by_time(cast: Cast) -> None:
    now = timezone.now()
    later = int((now + timedelta(minutes=1)).timestamp() * 1000)
    before = int((now - timedelta(minutes=1)).timestamp() * 1000)

    assert ask(cast.admin, actor="maria", start_time=later)[1] == {"events": []}
    assert len(ask(cast.admin, actor="maria", start_time=before, end_time=later)[1]["events"]) == 3


@pytest.mark.parametrize(
    "query",
    [
        {"max_results": 0},
        {"max_results": 1001},
        {"max_results": "x"},
        {"action": "x"},
        {"object_kind": "x"},
        {"page_token": "x"},
        {"page_token": "9" * 20},
        {"start_time": -1},
        {"end_time": 10**18},
    ],
)
def test_bad_queries_are_a_400(cast: Cast, query: dict[str, Any]) -> None:
    status, body = ask(cast.admin, **query)

    assert (status, body["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


def test_the_api_takes_few_queries(cast: Cast, django_assert_max_num_queries: Any) -> None:
    for number in range(60):
        record(Action.LOGIN, ObjectKind.USER, f"user{number}")
    ask(cast.admin)  # notes the token's use

    with django_assert_max_num_queries(3):  # token, groups, rows
        assert len(ask(cast.admin)[1]["events"]) == 65  # each of the cast has a token
