"""The documented three steps, with the unmodified clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.acceptance import MARKS, run_program
from tests.support.stack import Stack

pytestmark = MARKS


@pytest.mark.parametrize("options", [(), ("--torch",)], ids=["numpy", "torch"])
def test_the_documents_flow_works_with_the_unmodified_clients(
    stack: Stack, tmp_path: Path, options: tuple[str, ...]
) -> None:
    printed = run_program(stack, tmp_path, "seed_flow.py", *options)

    assert "13 passed, 0 failed" in printed, printed
