"""LitServe with its batching on, and two processes that read requests."""

from __future__ import annotations

import os
from typing import Any

import litserve
import numpy as np

from tests.bench.workloads import WORKLOADS, Array, build, predict

WORKLOAD = os.environ["BENCH_WORKLOAD"]


class Workload(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.module = build(WORKLOAD)

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # LitServe reads type hints
        return np.asarray(request["inputs"][0], dtype=WORKLOADS[WORKLOAD].dtype)

    def batch(self, inputs: list[Array]) -> Array:
        return np.stack(inputs)

    def predict(self, batch: Array) -> Array:
        return predict(self.module, batch)

    def unbatch(self, output: Array) -> list[Array]:
        return list(output)

    def encode_response(self, output: Array) -> dict[str, Any]:
        return {"predictions": [output.tolist()]}


if __name__ == "__main__":
    api = Workload(
        max_batch_size=int(os.environ["BENCH_MAX_BATCH"]),
        batch_timeout=int(os.environ["BENCH_WINDOW_MS"]) / 1000,
    )
    server = litserve.LitServer(
        api, accelerator="cpu", workers_per_device=int(os.environ["BENCH_COPIES"])
    )
    server.run(
        host="127.0.0.1",
        port=int(os.environ["BENCH_PORT"]),
        num_api_servers=2,
        log_level="warning",
        generate_client_file=False,
    )
