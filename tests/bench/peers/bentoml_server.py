"""BentoML with its adaptive batching on; it finds the window by itself.

`bentoml serve tests.bench.peers.bentoml_server:Workload`
"""

from __future__ import annotations

import os

import bentoml
import numpy as np

from tests.bench.workloads import WORKLOADS, build, predict

WORKLOAD = os.environ["BENCH_WORKLOAD"]
PATIENT_MS = 60_000  # longer queues are answered with an error


@bentoml.service(
    workers=int(os.environ["BENCH_COPIES"]),
    traffic={"timeout": 60, "max_concurrency": 1024},
    logging={"access": {"enabled": False}},
)
class Workload:
    def __init__(self) -> None:
        self.module = build(WORKLOAD)

    @bentoml.api(
        batchable=True,
        max_batch_size=int(os.environ["BENCH_MAX_BATCH"]),
        max_latency_ms=PATIENT_MS,
    )
    def invocations(self, inputs: np.ndarray) -> np.ndarray:
        return predict(self.module, np.asarray(inputs, dtype=WORKLOADS[WORKLOAD].dtype))
