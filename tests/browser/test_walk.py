"""The whole way in a browser on the whole stack, behind real Triton: from log-in to deletion."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Tab
from tests.support.stack import MODEL, Stack

pytestmark = [pytest.mark.stack, pytest.mark.triton, pytest.mark.timeout(600)]

DEPLOY_MS = 180_000


def test_from_logging_in_to_deleting(stack: Stack, tab: Tab) -> None:
    page = tab.page
    tab.log_in(stack.url, "admin", stack.admin_password)

    # The preview.
    page.goto(f"{stack.url}/settings/previews/")
    switch = page.get_by_role("switch", name=re.compile("Throughput optimized"))
    if switch.get_attribute("aria-checked") == "true":
        switch.click()
    expect(switch).to_have_attribute("aria-checked", "false")

    # Without it the form has no checkbox, and says why.
    page.goto(f"{stack.url}/models/{MODEL}/versions/1/")
    expect(page.get_by_role("heading", name="Express deployment")).to_be_visible()
    page.get_by_role("link", name="Serve this version").first.click()
    expect(page.get_by_label("Version")).to_have_value("1")
    page.get_by_label("Compute type").select_option("GPU_SMALL")
    checkbox = page.get_by_role("checkbox", name="Throughput optimized")
    expect(page.get_by_role("link", name="Open Previews")).to_be_visible()
    expect(checkbox).to_have_count(0)
    page.get_by_role("link", name="Open Previews").click()
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "true")

    # Create.
    page.goto(f"{stack.url}/endpoints/new/?model={MODEL}&version=1")
    page.get_by_label("Name", exact=True).fill("walked")
    page.get_by_label("Compute type").select_option("GPU_SMALL")
    checkbox.check()
    expect(page.get_by_text("Triton, throughput optimized")).to_be_visible()
    page.get_by_role("button", name="Create", exact=True).click()

    # Watch the deployment, up to the badge.
    page.wait_for_url(f"{stack.url}/endpoints/walked/")
    expect(page.get_by_role("heading", name="Deploying config version 1")).to_be_visible()
    head = page.locator("#endpoint-head")
    expect(head.get_by_text("Ready", exact=True)).to_be_visible(timeout=DEPLOY_MS)
    expect(page.get_by_text("Triton active", exact=True)).to_be_visible(timeout=60_000)

    # From a piece of evidence to its line in the log.
    fact = page.get_by_role("link", name=re.compile("successfully loaded 'model'"))
    line = re.search(r"line=(\d+)", fact.get_attribute("href") or "")
    assert line
    fact.click()
    expect(page.get_by_text("successfully loaded 'model'").first).to_be_visible()
    assert f"line={line[1]}" in page.url

    # Query.
    page.get_by_role("navigation", name="Endpoint").get_by_role("link", name="Query").click()
    body = page.get_by_label("Body (JSON)")
    expect(body).to_have_value(re.compile("inputs|dataframe_split|instances"))
    body.fill('{"inputs": [[1, 2, 3, 4], [0, 0, 0, 9]]}')
    page.get_by_role("button", name="Send request").click()
    answer = page.locator("#answer")
    expect(answer.get_by_text("200 OK")).to_be_visible()
    expect(answer.locator("pre")).to_contain_text("[10.0, 4.0]")
    split = answer.locator("[data-time-split]")
    expect(split).to_have_text(
        re.compile(
            r"gateway [\d.]+ ms, waiting for the model [\d.]+ ms, the model's call [\d.]+ ms"
        )
    )
    body.fill('{"inputs": [[-1, 2, 3, 4]]}')
    page.get_by_role("button", name="Send request").click()
    expect(answer.get_by_text("400 Bad Request")).to_be_visible()
    expect(answer.locator("pre")).to_contain_text("must not be negative")

    # The list has the badge too.
    page.goto(stack.url)
    row = page.get_by_role("row").filter(has_text="walked")
    expect(row.get_by_text("Triton active")).to_be_visible()
    expect(row.get_by_text("1 of 1")).to_be_visible()

    # Edit: the checkbox off; the standard backend takes over.
    page.goto(f"{stack.url}/endpoints/walked/")
    page.get_by_role("link", name="Edit", exact=True).click()
    checkbox.uncheck()
    expect(page.locator("#changes")).to_contain_text("Throughput optimized")
    page.get_by_role("button", name="Save and deploy").click()
    page.wait_for_url(f"{stack.url}/endpoints/walked/")
    expect(page.get_by_text("Triton active", exact=True)).to_have_count(0, timeout=DEPLOY_MS)
    expect(page.get_by_role("heading", name="Active configuration")).to_be_visible()
    expect(page.get_by_text("Standard backend", exact=True)).to_be_visible()

    # Delete, by its name.
    page.get_by_label("More actions").click()
    page.get_by_role("link", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("to confirm").fill("walked")
    dialog.get_by_role("button", name="Delete endpoint").click()
    page.wait_for_url(f"{stack.url}/")
    expect(page.get_by_role("row").filter(has_text="walked")).to_have_count(0)
    assert [text for text in tab.complaints if "400" not in text] == []


def test_without_script_too(stack: Stack, plain_tab: Tab) -> None:
    page = plain_tab.page
    plain_tab.log_in(stack.url, "admin", stack.admin_password)
    page.goto(f"{stack.url}/endpoints/new/?model={MODEL}&version=1")
    page.get_by_label("Name", exact=True).fill("walked-plainly")
    page.get_by_label("Compute type").select_option("GPU_SMALL")
    page.get_by_role("button", name="Update form").click()
    page.get_by_role("checkbox", name="Throughput optimized").check()
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url(f"{stack.url}/endpoints/walked-plainly/")
    stack.wait_until_settled("walked-plainly")

    page.reload()
    expect(page.get_by_text("Triton active", exact=True)).to_be_visible()
    page.goto(f"{stack.url}/endpoints/walked-plainly/query/")
    page.get_by_label("Body (JSON)").fill('{"inputs": [[1, 2, 3, 4]]}')
    page.get_by_role("button", name="Send request").click()
    expect(page.get_by_text("200 OK")).to_be_visible()

    page.goto(f"{stack.url}/endpoints/walked-plainly/delete/")
    page.get_by_label("to confirm").fill("walked-plainly")
    page.get_by_role("button", name="Delete endpoint").click()
    page.wait_for_url(f"{stack.url}/")
    expect(page.get_by_role("row").filter(has_text="walked-plainly")).to_have_count(0)
