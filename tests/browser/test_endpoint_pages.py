"""Every endpoint page in a real browser: a silent console, axe in both themes, live, narrow."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from portal.accounts.models import User
from portal.endpoints.models import Endpoint, Replica
from portal.endpoints.states import ConfigUpdate, Ready, StepName, StepState
from portal.previews.services import set_enabled
from tests.browser.conftest import Tab
from tests.support.batching import tell_batching
from tests.support.factories import (
    AdminFactory,
    DeploymentFactory,
    EndpointConfigFactory,
    ServedEntityFactory,
    live_endpoint,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

PAGES = (
    "/",
    "/?q=nothing-like-it",
    "/endpoints/new/",
    "/endpoints/detector/",
    "/endpoints/detector/edit/",
    "/endpoints/detector/batching/",
    "/endpoints/detector/batching/measure/?entity=main",
    "/endpoints/detector/events/",
    "/endpoints/detector/query/",
    "/endpoints/detector/settings/",
    "/endpoints/detector/delete/",
    "/endpoints/rolling/",
)


@pytest.fixture
def boss() -> User:
    user: User = AdminFactory(username="boss")
    set_enabled("throughput_optimized", True, user)
    return user


@pytest.fixture
def endpoints(boss: User) -> list[Endpoint]:
    """One that serves behind Triton, and one that is rolling out."""
    serving = live_endpoint(endpoint_name="detector", creator=boss)
    tell_batching(Replica.objects.get(), {1: 40, 4: 20, 8: 500})
    rolling = live_endpoint(endpoint_name="rolling", creator=boss, throughput_optimized=False)
    config = EndpointConfigFactory(endpoint=rolling, version=2)
    ServedEntityFactory(config=config, optimized=True)
    deployment = DeploymentFactory(config=config, running=True)
    deployment.steps.filter(name=StepName.LOAD).update(state=StepState.RUNNING)
    rolling.pending_config, rolling.config_update = config, ConfigUpdate.IN_PROGRESS
    rolling.save()
    return [serving, rolling]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_accessible_and_their_console_is_silent(
    browser: Browser, live_server: LiveServer, boss: User, endpoints: list[Endpoint], theme: str
) -> None:
    context = browser.new_context(
        viewport={"width": 1280, "height": 900},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    tab = Tab(context)
    tab.enter(live_server.url, boss)

    found = {}
    for path in PAGES:
        tab.page.goto(live_server.url + path)
        if problems := tab.axe():
            found[path] = problems

    assert found == {}
    assert tab.complaints == []
    context.close()


def test_no_page_is_wider_than_a_telephone(
    browser: Browser, live_server: LiveServer, boss: User, endpoints: list[Endpoint]
) -> None:
    context = browser.new_context(viewport={"width": 320, "height": 800})
    tab = Tab(context)
    tab.enter(live_server.url, boss)

    widths = {}
    for path in PAGES:
        tab.page.goto(live_server.url + path)
        widths[path] = tab.page.evaluate("document.documentElement.scrollWidth")

    assert {path: width for path, width in widths.items() if width > 320} == {}
    context.close()


def test_the_page_follows_a_deployment_and_says_its_end(
    tab: Tab, live_server: LiveServer, boss: User, endpoints: list[Endpoint]
) -> None:
    tab.enter(live_server.url, boss)
    tab.page.goto(f"{live_server.url}/endpoints/rolling/")
    expect(tab.page.get_by_text("Deploying config version 2")).to_be_visible()

    rolling = endpoints[1]
    rolling.deployments.filter(state="RUNNING").update(state="FAILED", failed_step=StepName.LOAD)
    Endpoint.objects.filter(pk=rolling.pk).update(
        config_update=ConfigUpdate.UPDATE_FAILED, config_update_message="No module named x."
    )

    expect(tab.page.get_by_text("Failed at “Start the server and load the model”")).to_be_visible()
    expect(tab.page.locator("#endpoint-head").get_by_text("Update failed")).to_be_visible()
    expect(tab.page.locator("[data-announcer]")).to_contain_text("rolling: Ready, Update failed")
    expect(tab.page).to_have_title("! Update failed · rolling · Shoal")
    assert tab.complaints == []


def test_the_list_follows_too(
    tab: Tab, live_server: LiveServer, boss: User, endpoints: list[Endpoint]
) -> None:
    tab.enter(live_server.url, boss)
    tab.page.goto(live_server.url)
    row = tab.page.get_by_role("row").filter(has_text="rolling")
    expect(row.get_by_text("Updating")).to_be_visible()

    Endpoint.objects.filter(pk=endpoints[1].pk).update(
        config_update=ConfigUpdate.NOT_UPDATING, ready=Ready.NOT_READY, is_stopped=True
    )

    expect(row.get_by_text("Updating")).to_have_count(0)
    expect(row.get_by_text("Stopped", exact=True).first).to_be_visible()


def test_filters_are_in_the_url(
    tab: Tab, live_server: LiveServer, boss: User, endpoints: list[Endpoint]
) -> None:
    tab.enter(live_server.url, boss)
    tab.page.goto(live_server.url)

    tab.page.get_by_label("State").select_option("updating")
    tab.page.wait_for_url("**/?state=updating")

    expect(tab.page.get_by_role("row").filter(has_text="rolling")).to_be_visible()
    expect(tab.page.get_by_role("row").filter(has_text="detector")).to_have_count(0)


def test_deleting_asks_in_a_dialog_with_the_focus_on_cancel(
    tab: Tab, live_server: LiveServer, boss: User, endpoints: list[Endpoint]
) -> None:
    tab.enter(live_server.url, boss)
    page = tab.page
    page.goto(f"{live_server.url}/endpoints/detector/settings/")

    page.get_by_role("link", name="Delete endpoint").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("link", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Delete endpoint")).to_be_focused()

    page.get_by_role("link", name="Delete endpoint").click()
    dialog.get_by_label("to confirm").fill("detector")
    dialog.get_by_role("button", name="Delete endpoint").click()

    page.wait_for_url(f"{live_server.url}/")
    expect(page.locator("#content").get_by_text("detector is deleted.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="detector")).to_have_count(0)
    assert tab.complaints == []


def test_the_chosen_snippet_is_remembered(
    tab: Tab, live_server: LiveServer, boss: User, endpoints: list[Endpoint]
) -> None:
    tab.enter(live_server.url, boss)
    page = tab.page
    page.goto(f"{live_server.url}/endpoints/detector/query/")
    expect(page.get_by_text("curl http")).to_be_visible()

    page.get_by_role("radio", name="MLflow").check()
    page.reload()

    expect(page.get_by_text("get_deploy_client").first).to_be_visible()
    expect(page.get_by_text("curl http")).to_be_hidden()


def test_charts_are_drawn_in_the_pages_colours_and_stand_in_tables_too(
    browser: Browser, live_server: LiveServer, boss: User, endpoints: list[Endpoint]
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    tab = Tab(context)
    tab.enter(live_server.url, boss)
    page = tab.page
    page.goto(f"{live_server.url}/endpoints/detector/batching/")
    sizes = page.get_by_role("img", name=re.compile("Batches by their rows"))
    bars = sizes.locator(".bars .point path")

    expect(bars).to_have_count(3)
    light = bars.first.evaluate("bar => getComputedStyle(bar).fill")
    page.emulate_media(color_scheme="dark")
    expect(bars.first).not_to_have_css("fill", light)
    expect(
        page.get_by_role("img", name=re.compile("the knee")).locator(".scatterlayer .trace")
    ).to_have_count(2)
    page.get_by_text("Show data").first.click()
    table = page.get_by_role("table", name="Batches by their rows")
    expect(table).to_contain_text("500")

    tell_batching(Replica.objects.filter(is_wanted=True)[0], {2: 700, 16: 600})
    page.evaluate(
        "htmx.ajax('GET', `${location.pathname}status/`, "
        "{target: '#endpoint-batching', swap: 'outerHTML'})"
    )
    expect(table).to_contain_text("700")  # unfolded as before
    expect(bars).to_have_count(2)
    assert tab.complaints == []
    context.close()
