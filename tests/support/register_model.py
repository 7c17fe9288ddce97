"""A user's script: log a small model and register it with env_pack. Run by the client's Python.

`python register_model.py NAME [--plain] [KEY=VALUE ...]`: without env_pack where --plain is said;
KEY=VALUE words become the model's metadata; break=load makes it fail to load.
Predicts, for N rows of 4 numbers, N rows of 2: their sum and their largest; a row with a
negative first number makes it raise, so that tests can send a bad request on purpose.
"""

from __future__ import annotations

import sys
from importlib import metadata

import mlflow
import numpy as np
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec


class SumAndMax(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # mlflow is seen as Any
    """[N, 4] float32 to [N, 2] float32."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def load_context(self, context):  # type: ignore[no-untyped-def]  # as users write it
        """Refuse to load where the metadata says so."""
        if "break=load" in self.words:
            raise RuntimeError("broken on purpose")

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # as users write it
        """Sum and largest of each row."""
        rows = np.asarray(model_input, dtype=np.float32)
        if (rows[:, 0] < 0).any():
            raise ValueError("the first number must not be negative")
        return np.stack([rows.sum(axis=1), rows.max(axis=1)], axis=1)


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    pairs = [word for word in words if "=" in word]
    env_pack = None if "--plain" in words else "databricks_model_serving"
    signature = ModelSignature(  # mlflow-skinny cannot infer it: that needs scipy
        inputs=Schema([TensorSpec(np.dtype("float32"), (-1, 4))]),
        outputs=Schema([TensorSpec(np.dtype("float32"), (-1, 2))]),
    )
    mlflow.set_registry_uri("databricks-uc")
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="model",
            python_model=SumAndMax(words),
            input_example=np.arange(8, dtype=np.float32).reshape(2, 4),
            signature=signature,
            metadata=dict(pair.split("=", 1) for pair in pairs) or None,
            pip_requirements=[
                f"{name}=={metadata.version(name)}" for name in ("mlflow-skinny", "numpy", "pandas")
            ],
        )
    version = mlflow.register_model(info.model_uri, name, env_pack=env_pack)
    sys.stdout.write(f"VERSION {version.version}\n")
