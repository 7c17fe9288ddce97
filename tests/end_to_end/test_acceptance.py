"""The programs that run the real clients against a running Shoal, where they are at hand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.client import FULL, ROOT, client_python, client_variables
from tests.support.stack import Stack

ACCEPTANCE = Path(os.environ.get("SHOAL_ACCEPTANCE", ROOT.parent / "shared" / "acceptance"))

pytestmark = [
    pytest.mark.skipif(not ACCEPTANCE.is_dir(), reason="the acceptance programs are not at hand"),
    pytest.mark.stack,
    pytest.mark.triton,
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize("with_torch", [False, True], ids=["numpy", "torch"])
def test_the_documents_flow_works_with_the_unmodified_clients(
    stack: Stack, tmp_path: Path, with_torch: bool
) -> None:
    script = [str(ACCEPTANCE / "seed_flow.py"), *(["--torch"] if with_torch else [])]

    done = subprocess.run(
        [str(client_python(FULL)), *script],
        cwd=tmp_path,
        env=client_variables(stack.url, stack.token, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert "13 passed, 0 failed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "checks"),
    [((), 119), (("--env-pack", "--workload-type", "GPU_SMALL"), 120)],
    ids=["plain", "packed"],
)
def test_every_call_of_the_unmodified_clients_works(
    stack: Stack, tmp_path: Path, options: tuple[str, ...], checks: int
) -> None:
    script = [str(ACCEPTANCE / "sdk_conformance.py"), *options, "--big-file-mib", "51"]

    done = subprocess.run(
        [str(client_python(FULL)), *script],
        cwd=tmp_path,
        env=client_variables(stack.url, stack.token, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert f"{checks} passed, 0 failed" in done.stdout, done.stdout + done.stderr
