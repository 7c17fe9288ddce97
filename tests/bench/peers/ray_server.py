"""Ray Serve with `@serve.batch`."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import ray
from ray import serve
from starlette.requests import Request

from tests.bench.workloads import WORKLOADS, Array, build, predict

WORKLOAD = os.environ["BENCH_WORKLOAD"]
COPIES = int(os.environ["BENCH_COPIES"])


@serve.deployment(num_replicas=COPIES, max_ongoing_requests=1024, ray_actor_options={"num_cpus": 1})
class Workload:
    def __init__(self) -> None:
        self.module = build(WORKLOAD)

    @serve.batch(
        max_batch_size=int(os.environ["BENCH_MAX_BATCH"]),
        batch_wait_timeout_s=int(os.environ["BENCH_WINDOW_MS"]) / 1000,
    )
    async def predict(self, rows: list[Array]) -> list[Array]:
        return list(predict(self.module, np.stack(rows)))

    async def __call__(self, request: Request) -> dict[str, Any]:
        inputs = (await request.json())["inputs"]
        row = np.asarray(inputs[0], dtype=WORKLOADS[WORKLOAD].dtype)
        return {"predictions": [(await self.predict(row)).tolist()]}


if __name__ == "__main__":
    ray.init(num_cpus=COPIES + 2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(os.environ["BENCH_PORT"])})
    application = Workload.bind()  # type: ignore[attr-defined]  # the decorator adds it
    serve.run(application, route_prefix="/invocations")
    threading.Event().wait()
