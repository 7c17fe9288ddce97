"""Log and register the demo's model with the unmodified `mlflow` client.

Run by `manage.py demo` in a small virtual environment of its own (`env_pack` packs all of it):
`python demo_model.py MODEL_NAME`, with DATABRICKS_HOST and DATABRICKS_TOKEN set. It imports
nothing of Shoal: any user's script could look like this.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import mlflow
import numpy as np
import torch
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec


class TextEmbedder(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # mlflow is seen as Any
    """A small transformer encoder with seeded weights: 32 token ids in, 64 floats out."""

    def load_context(self, context: Any) -> None:
        """Build the module once for each server."""
        torch.manual_seed(20)
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.embed = torch.nn.Embedding(1000, 64).to(self.device)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.encoder.to(self.device).eval()

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # mlflow reads type hints as a schema
        """[N, 32] int64 to [N, 64] float32; the whole batch in one call."""
        ids = torch.from_numpy(np.ascontiguousarray(model_input)).to(self.device)
        with torch.inference_mode():
            return self.encoder(self.embed(ids)).mean(dim=1).cpu().numpy()


def main(name: str) -> None:
    """Register one version of the demo's model."""
    example = np.random.default_rng(7).integers(0, 1000, (2, 32), dtype=np.int64)
    signature = ModelSignature(
        inputs=Schema([TensorSpec(np.dtype("int64"), (-1, 32))]),
        outputs=Schema([TensorSpec(np.dtype("float32"), (-1, 64))]),
    )
    mlflow.set_registry_uri("databricks-uc")
    sys.stdout.write("logging the model\n")
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="model",
            python_model=TextEmbedder(),
            input_example=example,
            signature=signature,
            pip_requirements=os.environ["SHOAL_DEMO_REQUIREMENTS"].split(),
        )
    sys.stdout.write("packing the environment and uploading\n")
    sys.stdout.flush()
    version = mlflow.register_model(info.model_uri, name, env_pack="databricks_model_serving")
    sys.stdout.write(f"registered {version.name} version {version.version}\n")


if __name__ == "__main__":
    main(sys.argv[1])
