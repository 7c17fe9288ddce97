"""A workload as an MLflow model, logged from this file: `model_config` says which one.

`workloads.py` goes along in `code_paths`, so that the model loads where nothing of Shoal is.
"""

from __future__ import annotations

import mlflow
import numpy as np
from workloads import build, predict


class WorkloadModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # mlflow is seen as Any
    """Builds the module once for each server; predicts the whole batch in one call."""

    def load_context(self, context):  # type: ignore[no-untyped-def]  # as users write it
        self.module = build(context.model_config["workload"])

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # mlflow reads type hints as a schema
        return predict(self.module, np.ascontiguousarray(model_input))


mlflow.models.set_model(WorkloadModel())
