"""Each snippet of the Query tab runs as it stands, given a token in the environment."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys

import pytest
import requests

from tests.support.client import TRITON, client_python
from tests.support.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.triton, pytest.mark.timeout(600)]

KEYS = ("curl", "requests", "mlflow", "sdk", "binary")


@pytest.fixture(scope="module")
def query_page(stack: Stack) -> str:
    """The Query tab of an endpoint that serves, for the admin."""
    stack.create("snippets", "1")
    stack.wait_until_settled("snippets")
    session = requests.Session()
    page = session.get(f"{stack.url}/login/", timeout=30).text
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token
    form = {
        "username": "admin",
        "password": stack.admin_password,
        "csrfmiddlewaretoken": token[1],
    }
    session.post(f"{stack.url}/login/", form, timeout=30)
    return session.get(f"{stack.url}/endpoints/snippets/query/", timeout=30).text


@pytest.mark.parametrize("key", KEYS)
def test_a_snippet_runs_as_it_stands(stack: Stack, query_page: str, key: str) -> None:
    found = re.search(rf'class="snippet snippet-{key}".*?<code>(.*?)</code>', query_page, re.DOTALL)
    assert found
    code = html.unescape(found[1])
    python = str(client_python(TRITON)) if key == "binary" else sys.executable
    command = ["bash", "-c", code] if key == "curl" else [python, "-c", code]

    done = subprocess.run(
        command,
        env=os.environ
        | {
            "DATABRICKS_HOST": stack.url,
            "DATABRICKS_TOKEN": stack.token,
            "MLFLOW_DISABLE_TELEMETRY": "true",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert "6.0" in done.stdout  # the first row of the input example sums to 0 + 1 + 2 + 3
    assert stack.token not in query_page
