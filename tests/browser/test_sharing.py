"""Sharing in a real browser: accessible in both themes, narrow, and without script."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from portal.accounts import groups
from portal.accounts.models import User
from portal.endpoints.models import EndpointPermission
from portal.registry.services import Readers, set_readers
from tests.browser.conftest import Tab
from tests.support.factories import ModelVersionFactory, UserFactory, live_endpoint, make_cast

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

MODEL = "main.default.detector"


@pytest.fixture
def boss() -> User:
    """An admin among others, with an endpoint, a group and a restricted model to share."""
    cast = make_cast()
    team = groups.create_group("vision team")
    groups.set_member(team, cast.viewer.user, is_member=True)
    endpoint = cast.share(live_endpoint(endpoint_name="detector", creator=cast.admin.user))
    EndpointPermission.objects.create(endpoint=endpoint, group_name="users", level="CAN_VIEW")
    version = ModelVersionFactory(model__name=MODEL, model__owner=cast.admin.user)
    readers = Readers(is_restricted=True, user_names=("querier",), group_names=("vision team",))
    set_readers(cast.admin.user, version.model, readers)
    ModelVersionFactory(model__name="main.default.open", model__owner=cast.admin.user)
    UserFactory(username="a.rather.long.name@some-company.example.com")
    return cast.admin.user


PATHS = (
    "/endpoints/detector/settings/",
    f"/models/{MODEL}/",
    "/models/main.default.open/",
    "/models/",
    "/settings/groups/",
    "/settings/groups/{team}/",
)


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_accessible_silent_and_fit(
    browser: Browser, live_server: LiveServer, boss: User, theme: str, width: int
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    tab = Tab(context)
    tab.enter(live_server.url, boss)
    team = Group.objects.get(name="vision team").pk

    problems = {}
    for path in PATHS:
        tab.page.goto(live_server.url + path.format(team=team))
        overflow = tab.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        found = tab.axe() + ([f"{overflow} px too wide"] if overflow > 0 else [])
        if found:
            problems[path] = found

    assert problems == {}
    assert tab.complaints == []
    context.close()


def test_an_endpoint_is_shared_without_script(
    live_server: LiveServer, boss: User, plain_tab: Tab
) -> None:
    plain_tab.enter(live_server.url, boss)
    page = plain_tab.page
    page.goto(f"{live_server.url}/endpoints/detector/settings/")

    page.get_by_label("Name", exact=True).fill("stranger")
    page.get_by_label("May", exact=True).select_option("CAN_VIEW")
    page.get_by_role("button", name="Add").click()
    row = page.get_by_role("row", name="stranger")
    expect(row).to_be_visible()
    expect(page.get_by_text("stranger can view detector.")).to_be_visible()

    page.get_by_role("combobox", name="What stranger may do").select_option("CAN_QUERY")
    page.get_by_role("button", name="Save what stranger may do").click()
    expect(page.get_by_role("combobox", name="What stranger may do")).to_have_value("CAN_QUERY")

    page.get_by_role("button", name="Remove stranger").click()
    expect(row).to_have_count(0)
