"""Every call of the unmodified clients that the contract names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.acceptance import MARKS, run_program
from tests.support.stack import Stack

pytestmark = MARKS


@pytest.mark.parametrize(
    ("options", "checks"),
    [((), 119), (("--env-pack", "--workload-type", "GPU_SMALL"), 120)],
    ids=["plain", "packed"],
)
def test_every_call_of_the_unmodified_clients_works(
    stack: Stack, tmp_path: Path, options: tuple[str, ...], checks: int
) -> None:
    small = ("--big-file-mib", "51")

    printed = run_program(stack, tmp_path, "sdk_conformance.py", *options, *small)

    assert f"{checks} passed, 0 failed" in printed, printed
