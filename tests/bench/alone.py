"""How fast the module is without any server: the limit of them all."""

from __future__ import annotations

import time

import torch

from tests.bench.results import Alone
from tests.bench.servers import MAX_BATCH
from tests.bench.workloads import build, example, predict

SECONDS = 0.5


def measure(workload: str, *, threads: int) -> Alone:
    """Its best batch, by rows a second."""
    torch.set_num_threads(threads)
    module = build(workload)
    sizes = [2**power for power in range(MAX_BATCH.bit_length())]
    found = []
    for size in sizes:
        batch, calls = example(workload, size), 0
        predict(module, batch)
        begin = time.perf_counter()
        while time.perf_counter() - begin < SECONDS:
            predict(module, batch)
            calls += 1
        rows_per_s = calls * size / (time.perf_counter() - begin)
        found.append(Alone(rows_per_s=rows_per_s, batch=size))
    return max(found, key=lambda alone: alone.rows_per_s)
