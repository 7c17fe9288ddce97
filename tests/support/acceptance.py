"""Runs the programs that drive the real clients against a running Shoal, where they are at hand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.client import FULL, ROOT, client_python, client_variables
from tests.support.stack import Stack

ACCEPTANCE = Path(os.environ.get("SHOAL_ACCEPTANCE", ROOT.parent / "shared" / "acceptance"))

MARKS = [
    pytest.mark.skipif(not ACCEPTANCE.is_dir(), reason="the acceptance programs are not at hand"),
    pytest.mark.stack,
    pytest.mark.triton,
    pytest.mark.timeout(900),
]


def run_program(stack: Stack, work: Path, name: str, *options: str) -> str:
    """What a program prints, run from the environment that the documentation tells users to make.

    Args:
        stack: What it talks to.
        work: A folder for its files.
        name: Of the program.
    """
    done = subprocess.run(
        [str(client_python(FULL)), str(ACCEPTANCE / name), *options],
        cwd=work,
        env=client_variables(stack.url, stack.token, work),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr
