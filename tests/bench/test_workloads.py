"""The benchmark's workloads: the same numbers wherever they are built."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.workloads import WORKLOADS, build, example, predict


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_built_twice_gives_the_same_numbers_alone_and_in_a_batch(name: str) -> None:
    rows = example(name, 3)

    together = predict(build(name), rows)
    alone = predict(build(name), example(name, 1))

    assert together.shape == (3, *WORKLOADS[name].output)
    assert together.dtype == np.float32
    np.testing.assert_allclose(alone, together[:1], rtol=1e-4, atol=1e-5)


def test_rows_differ_and_so_do_their_answers() -> None:
    for name in WORKLOADS:
        first, second = predict(build(name), example(name, 2))

        assert not np.allclose(first, second, rtol=1e-6, atol=1e-7)
