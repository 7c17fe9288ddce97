"""The workloads that every server of the benchmark serves: same weights, same rows, same numbers.

`mlp`      64 floats to 64 through a hidden layer of 512: what a server costs by itself.
`encoder`  32 token ids to 384 floats through a small transformer: the model's own work.
`image`    3 x 224 x 224 floats to 10 through four strided convolutions: large requests.
`device`   64 floats to 64, asleep for 8 ms a call and 0.1 ms a row: an accelerator that rewards
           full batches and leaves the cores free.

Weights are seeded, not trained: speed does not depend on them, and answers can be compared. Only
torch and NumPy are imported, so that this file can travel with the model that is logged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

Array = npt.NDArray[np.float32 | np.int64]

SEED = 1847
TOKENS = 30_000
CALL_S, ROW_S = 0.008, 0.0001


class Encoder(nn.Module):
    """[N, 32] int64 to [N, 384] float32: embedding, six transformer layers, mean."""

    def __init__(self) -> None:
        super().__init__()
        width = 384
        layer = nn.TransformerEncoderLayer(
            width, nhead=12, dim_feedforward=1536, dropout=0.0, activation="gelu", batch_first=True
        )
        self.embedding = nn.Embedding(TOKENS, width)
        self.encoder = nn.TransformerEncoder(layer, num_layers=6, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.mean(self.encoder(self.embedding(ids)), dim=1)


class Accelerator(nn.Module):
    """[N, 64] float32 to [N, 64] float32: waits as for a device."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        time.sleep(CALL_S + ROW_S * len(rows))
        return rows * 2


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64))


def _image() -> nn.Module:
    """[N, 3, 224, 224] float32 to [N, 10] float32."""
    layers: list[nn.Module] = [nn.Conv2d(3, 8, kernel_size=7, stride=4, padding=3), nn.ReLU()]
    for channels in (8, 16, 32):
        layers += [nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


@dataclass(frozen=True)
class Workload:
    """What a module takes and gives.

    Attributes:
        row: The shape of one row of its input.
        dtype: Of its input; the output is float32.
        output: The shape of one row of its output.
    """

    make: Callable[[], nn.Module]
    row: tuple[int, ...]
    dtype: str
    output: tuple[int, ...]


WORKLOADS = {
    "mlp": Workload(make=_mlp, row=(64,), dtype="float32", output=(64,)),
    "encoder": Workload(make=Encoder, row=(32,), dtype="int64", output=(384,)),
    "image": Workload(make=_image, row=(3, 224, 224), dtype="float32", output=(10,)),
    "device": Workload(make=Accelerator, row=(64,), dtype="float32", output=(64,)),
}


def build(name: str) -> nn.Module:
    """The seeded module, ready to predict; on `BENCH_THREADS` threads where that is set."""
    if threads := os.environ.get("BENCH_THREADS"):
        torch.set_num_threads(int(threads))
    torch.manual_seed(SEED)
    return WORKLOADS[name].make().eval()


def example(name: str, rows: int = 1) -> Array:
    """So many rows of the workload's input, the same each time."""
    workload, numbers = WORKLOADS[name], np.random.default_rng(SEED)
    shape = (rows, *workload.row)
    if workload.dtype == "int64":
        return numbers.integers(0, TOKENS, shape, dtype=np.int64)
    return numbers.random(shape, dtype=np.float32)


def predict(module: nn.Module, batch: Array) -> Array:
    """The module's output for a whole batch."""
    with torch.inference_mode():
        output: Array = module(torch.from_numpy(batch)).numpy()
    return output
