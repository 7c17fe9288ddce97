"""The API reference in a real browser: axe in both themes, narrow, links open what they name."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from tests.browser.conftest import Tab
from tests.support.factories import UserFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_accessible_and_fits_a_telephone(
    browser: Browser, live_server: LiveServer, theme: str
) -> None:
    context = browser.new_context(
        viewport={"width": 320, "height": 800},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    tab = Tab(context)
    tab.enter(live_server.url, UserFactory())

    tab.page.goto(f"{live_server.url}/settings/api/")
    for name in ("create_endpoint", "list_directory", "upload_file"):
        tab.page.locator(f"#{name}").evaluate("body => { body.parentElement.open = true; }")

    assert tab.axe() == []
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 320
    assert tab.complaints == []
    context.close()


def test_a_link_to_a_call_opens_it(tab: Tab, live_server: LiveServer) -> None:
    tab.enter(live_server.url, UserFactory())

    tab.page.goto(f"{live_server.url}/settings/api/#create_endpoint")
    expect(tab.page.locator("#create_endpoint")).to_be_visible()
    expect(tab.page.locator("#get_endpoint")).to_be_hidden()

    tab.page.locator("#get_endpoint").evaluate("body => { body.parentElement.open = true; }")
    tab.page.locator("#get_endpoint").get_by_role("link", name="EndpointState").click()
    expect(tab.page.locator("#object-EndpointState")).to_be_visible()
