"""The create form in a real browser: what comes and goes, what is said, and the keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from portal.accounts.models import User
from portal.endpoints.models import Endpoint
from portal.previews.services import set_enabled
from portal.registry.models import ModelVersion
from tests.browser.conftest import Tab
from tests.support.factories import AdminFactory, ModelVersionFactory, live_endpoint

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


@pytest.fixture
def express(live_server: LiveServer) -> ModelVersion:
    """An express version 1 of a model whose version 2 is not; the preview is on."""
    version: ModelVersion = ModelVersionFactory(
        staged=True, model__name="main.vision.detector", input_example={"inputs": [[1, 2]]}
    )
    ModelVersionFactory(model=version.model, version=2)
    set_enabled("throughput_optimized", True, AdminFactory(username="boss"))
    return version


@pytest.fixture
def form(tab: Tab, live_server: LiveServer, express: ModelVersion) -> Page:
    """The create form, opened by an admin."""
    tab.enter(live_server.url, User.objects.get(username="boss"))
    tab.page.goto(f"{live_server.url}/endpoints/new/")
    return tab.page


def test_the_checkbox_comes_and_goes_as_choices_are_made(form: Page, tab: Tab) -> None:
    checkbox = form.get_by_role("checkbox", name="Throughput optimized")
    expect(checkbox).to_have_count(0)

    form.get_by_label("Entity", exact=True).select_option("main.vision.detector")
    expect(form.get_by_label("Version")).to_have_value("2")
    form.get_by_label("Compute type").select_option("GPU_SMALL")
    expect(form.get_by_text("Register it again with")).to_be_visible()
    expect(checkbox).to_have_count(0)

    form.get_by_label("Version").select_option("1")
    expect(checkbox).to_be_visible()
    checkbox.check()
    expect(form.get_by_text("Triton, throughput optimized")).to_be_visible()

    form.get_by_label("Compute type").select_option("CPU")
    expect(checkbox).to_have_count(0)
    expect(form.get_by_role("complementary").get_by_text("Standard backend")).to_be_visible()
    assert tab.complaints == []


def test_batching_can_be_overridden_only_where_it_is_on(form: Page, tab: Tab) -> None:
    form.get_by_label("Entity", exact=True).select_option("main.vision.detector")
    expect(form.get_by_label("Version")).to_have_value("2")
    form.get_by_label("Compute type").select_option("GPU_SMALL")
    form.get_by_label("Version").select_option("1")
    checkbox = form.get_by_role("checkbox", name="Throughput optimized")
    expect(checkbox).to_be_visible()
    form.get_by_text("Advanced configuration").click()
    largest = form.get_by_label("Largest batch (rows)")
    expect(largest).to_be_hidden()

    checkbox.check()
    largest.fill("5000")
    form.keyboard.press("Tab")
    message = form.locator("#entity-0-max_batch_size-error")
    expect(message).to_have_text("Give a whole number from 1 to 4096.")
    largest.fill("64")
    expect(message).to_be_hidden()
    form.get_by_label("Preferred batches (rows)").fill("16, 64")

    form.get_by_text("The same as an API call").click()
    expect(form.locator("#api-call")).to_contain_text('"preferred_batch_size": [ 16, 64 ]')
    checkbox.uncheck()
    expect(largest).to_be_hidden()
    assert tab.complaints == []


def test_quick_picks_are_all_kept(form: Page) -> None:
    form.get_by_label("Entity", exact=True).select_option("main.vision.detector")
    expect(form.get_by_label("Version")).to_have_value("2")

    form.get_by_label("Compute type").select_option("GPU_SMALL")
    form.get_by_label("Version").select_option("1")  # while the first answer is on its way

    expect(form.get_by_role("checkbox", name="Throughput optimized")).to_be_visible()
    expect(form.get_by_label("Version")).to_have_value("1")
    expect(form.get_by_label("Compute type")).to_have_value("GPU_SMALL")
    expect(form.get_by_role("complementary").get_by_text("Standard backend")).to_be_visible()
    form.wait_for_load_state("networkidle")


def test_a_choice_keeps_the_focus_where_it_was(form: Page) -> None:
    model = form.get_by_label("Entity", exact=True)
    model.focus()
    model.select_option("main.vision.detector")

    expect(form.get_by_label("Version")).to_have_value("2")
    expect(form.get_by_label("Entity", exact=True)).to_be_focused()


def test_a_name_that_is_taken_is_said_while_typing(form: Page) -> None:
    live_endpoint(endpoint_name="taken")

    form.get_by_label("Name", exact=True).fill("taken")
    expect(form.locator("#name-error")).to_contain_text("There is an endpoint taken already")
    expect(form.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "true")

    form.get_by_label("Name", exact=True).fill("free")
    expect(form.locator("#name-error")).to_be_hidden()


def test_a_bad_name_is_said_on_leaving_the_field(form: Page) -> None:
    form.get_by_label("Name", exact=True).fill("no spaces")
    form.keyboard.press("Tab")

    expect(form.locator("#name-error")).to_contain_text("Use letters, digits, - and _ only.")


def test_errors_move_the_focus_to_a_summary_of_links(form: Page) -> None:
    form.get_by_role("button", name="Create").click()

    expect(form.locator("#problems")).to_be_focused()
    form.locator("#problems").get_by_role("link", name="Name").click()
    assert form.url.endswith("#name")


def test_rows_come_and_go_and_take_the_focus_along(form: Page, tab: Tab) -> None:
    form.get_by_text("Advanced configuration").click()
    form.get_by_role("button", name="Add environment variables").click()
    expect(form.locator("#entity-0-env-0-name")).to_be_focused()
    form.keyboard.type("KEY")

    form.get_by_role("button", name="Add served entity").click()
    expect(form.locator("#entity-1-model")).to_be_focused()
    expect(form.locator("#entity-0-env-0-name")).to_have_value("KEY")
    expect(form.locator("#entity-0-traffic")).to_have_value("50")
    form.locator("#entity-0-traffic").fill("70")
    expect(form.locator("[data-traffic-total]")).to_have_text("120")

    form.get_by_role("button", name="Remove served entity 2").click()
    expect(form.locator("#entity-1-model")).to_have_count(0)
    form.get_by_role("button", name="Add tag").click()
    expect(form.locator("#tag-0-name")).to_be_focused()
    assert tab.complaints == []


def test_the_form_can_be_walked_by_keyboard(form: Page) -> None:
    form.get_by_label("Name", exact=True).focus()
    form.keyboard.type("by-keyboard")
    form.keyboard.press("Tab")
    form.keyboard.type("main")
    expect(form.get_by_label("Version")).to_have_value("2")
    form.keyboard.press("Tab")
    form.keyboard.press("ArrowDown")
    expect(form.get_by_label("Version")).to_have_value("1")
    form.keyboard.press("Tab")
    form.keyboard.type("GPU s")
    expect(form.get_by_role("checkbox", name="Throughput optimized")).to_be_visible()
    form.keyboard.press("Tab")
    expect(form.get_by_role("checkbox", name="Throughput optimized")).to_be_focused()
    form.keyboard.press("Space")
    expect(form.get_by_text("Triton, throughput optimized")).to_be_visible()

    form.get_by_label("Name", exact=True).focus()
    form.keyboard.press("Enter")

    form.wait_for_url("**/endpoints/by-keyboard/")
    config = Endpoint.objects.get(name="by-keyboard").pending_config
    assert config is not None
    entity = config.entities.get()
    assert entity.throughput_optimized
    assert (entity.workload_type, entity.entity_version) == ("GPU_SMALL", "1")


def test_without_script_update_form_brings_the_checkbox(
    plain_tab: Tab, live_server: LiveServer, express: ModelVersion
) -> None:
    page = plain_tab.page
    plain_tab.enter(live_server.url, User.objects.get(username="boss"))
    page.goto(f"{live_server.url}/endpoints/new/")
    page.get_by_label("Name", exact=True).fill("plain")
    page.get_by_label("Entity", exact=True).select_option("main.vision.detector")
    page.get_by_role("button", name="Update form").click()
    page.get_by_label("Version").select_option("1")
    page.get_by_label("Compute type").select_option("GPU_SMALL")
    page.get_by_role("button", name="Update form").click()

    page.get_by_role("checkbox", name="Throughput optimized").check()
    expect(page.get_by_label("Name", exact=True)).to_have_value("plain")
    page.get_by_role("button", name="Create", exact=True).click()

    page.wait_for_url("**/endpoints/plain/")
    config = Endpoint.objects.get(name="plain").pending_config
    assert config is not None
    assert config.entities.get().throughput_optimized
