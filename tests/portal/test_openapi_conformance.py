"""schemathesis holds every answer to the document: no 5xx, no other status, type or field.

A few hundred cases; SHOAL_SCHEMATHESIS_CASES sets how many each call gets and adds the coverage
phase, for long runs by hand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support import openapi
from tests.support.live_portal import LivePortal

MOST_UNREACHED = 15
"""Calls that no case brings to succeed: a few need what is not there, such as a replica."""
CASES = os.environ.get("SHOAL_SCHEMATHESIS_CASES", "")


@pytest.fixture
def own_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePortal]:
    """Not the one that tests share: what they left, a worker above all, would change answers."""
    portal = LivePortal(tmp_path_factory.mktemp("conformance"))
    try:
        portal.start()
        yield portal
    finally:
        portal.stop()


@pytest.mark.timeout(900)  # a thousand calls; a busy machine has taken more than five minutes
def test_every_answer_is_as_the_document_says(own_portal: LivePortal, tmp_path: Path) -> None:
    token, names = openapi.fill(own_portal)
    headers = {"Authorization": f"Bearer {token}"}
    document = requests.get(f"{own_portal.url}/api/schema", headers=headers, timeout=60).json()
    phases = "examples,coverage,fuzzing" if CASES else "examples,fuzzing"

    run = openapi.run_schemathesis(
        tmp_path,
        own_portal.url,
        openapi.prepared(document, names),
        token,
        *("--phases", phases, "--max-examples", CASES or "4", "--seed", "20"),
        *("--generation-deterministic", "--continue-on-failure", "--request-timeout", "60"),
        *("--report", "har", "--report-har-path", str(tmp_path / "calls.har")),
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"(\d+) generated, \1 passed", run.stdout), run.stdout
    unreached = openapi.without_success(tmp_path / "calls.har", document)
    assert len(unreached) <= MOST_UNREACHED, unreached
