"""What `mlflow` is told about a workload's model, whether it is saved or logged."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec
from workloads import WORKLOADS, example

HERE = Path(__file__).resolve().parent
PACKAGES = ("numpy", "pandas", "torch")


def options(name: str, client: str) -> dict[str, Any]:
    """Arguments of `save_model` and `log_model`; `client` is the mlflow package that is used."""
    workload = WORKLOADS[name]
    inputs = TensorSpec(np.dtype(workload.dtype), (-1, *workload.row))
    outputs = TensorSpec(np.dtype("float32"), (-1, *workload.output))
    versions = {package: metadata.version(package) for package in (client, *PACKAGES)}
    return {
        "python_model": str(HERE / "model.py"),
        "model_config": {"workload": name},
        "code_paths": [str(HERE / "workloads.py")],
        "input_example": example(name, 2),
        "signature": ModelSignature(inputs=Schema([inputs]), outputs=Schema([outputs])),
        "pip_requirements": [
            f"{package}=={version.partition('+')[0]}" for package, version in versions.items()
        ],
    }
