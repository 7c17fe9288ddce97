"""MLServer's runtime for a workload; batching is set where the server is started."""

from __future__ import annotations

import os

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from tests.bench.workloads import build, predict


class Workload(MLModel):
    async def load(self) -> bool:
        self.module = build(os.environ["BENCH_WORKLOAD"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        rows = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("output_0", predict(self.module, rows))
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[output])
