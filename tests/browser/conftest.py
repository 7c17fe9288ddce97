"""The system's Chromium, and pages that remember every error their console showed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from portal.accounts.models import User

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
WAIT_MS = 15_000
expect.set_options(timeout=WAIT_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder drives a browser."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for the run."""
    program = next((found for name in CHROMIUM_NAMES if (found := shutil.which(name))), None)
    assert program, f"no browser on PATH; one of {', '.join(CHROMIUM_NAMES)} is needed"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS)
        yield running
        running.close()


class Tab:
    """A page in a context of its own, with what its console complained of."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        context.set_default_timeout(WAIT_MS)
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{self.page.url}: {message.text}")

    def log_in(self, base_url: str, username: str, password: str) -> None:
        """Through the form, as people do."""
        self.page.goto(f"{base_url}/login/")
        self.page.get_by_label("Username").fill(username)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(f"{base_url}/")

    def enter(self, base_url: str, user: User) -> None:
        """Without the form; only where the server shares the tests' database."""
        client = Client()
        client.force_login(user)
        value = client.cookies[settings.SESSION_COOKIE_NAME].value
        self.context.add_cookies(
            [{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": base_url}]
        )

    def axe(self) -> list[str]:
        """What axe finds against WCAG 2.2 AA on the page as it stands."""
        self.page.evaluate(AXE.read_text())
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        found = self.page.evaluate(
            "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", tags
        )
        return [
            f"{violation['id']}: {node['target']} {node['failureSummary']}"
            for violation in found["violations"]
            for node in violation["nodes"]
        ]


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    """A tab with script, light."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened = Tab(context)
    yield opened
    context.close()


@pytest.fixture
def plain_tab(browser: Browser) -> Iterator[Tab]:
    """A tab without script."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, java_script_enabled=False
    )
    opened = Tab(context)
    yield opened
    context.close()
