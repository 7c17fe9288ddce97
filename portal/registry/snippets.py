"""Code that registers a model here, with the real host; the token comes from the environment."""

from __future__ import annotations

ENV_PACK = 'env_pack="databricks_model_serving"'


def client_environment(host: str) -> str:
    """The variables that mlflow and the SDK need, before a model is logged."""
    return "\n".join(
        (
            f"export DATABRICKS_HOST={host}",
            'export DATABRICKS_TOKEN="$SHOAL_TOKEN"  # from Settings, Access tokens',
            "export DATABRICKS_ENV_VERSION=5         # names the runtime that env_pack records",
            "export DATABRICKS_ACCELERATOR=GPU       # packed for GPU workload types",
            "export MLFLOW_DISABLE_TELEMETRY=true",
        )
    )


def register_first_model() -> str:
    """A whole model, logged and registered as it stands."""
    return f"""\
import mlflow
import numpy as np

mlflow.set_registry_uri("databricks-uc")


class RowSums(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return np.asarray(model_input).sum(axis=1)


info = mlflow.pyfunc.log_model(
    name="model",
    python_model=RowSums(),
    input_example=np.ones((2, 4), dtype=np.float32),
)
mlflow.register_model(
    info.model_uri, "main.default.row_sums", {ENV_PACK}
)
"""


def register_with_environment(model_name: str) -> str:
    """Register a next version that carries its packed environment."""
    return f"""\
import mlflow

mlflow.set_registry_uri("databricks-uc")

# Log the model anew, with an input_example, in a small virtual environment:
# env_pack takes the environment along.
info = mlflow.pyfunc.log_model(
    name="model", python_model=model, input_example=example
)
mlflow.register_model(
    info.model_uri, "{model_name}", {ENV_PACK}
)
"""
