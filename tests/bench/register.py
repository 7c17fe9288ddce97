"""Log and register a workload with the unmodified client: `python register.py WORKLOAD NAME`.

Run by the client's Python, as a user's script would be.
"""

from __future__ import annotations

import sys

import mlflow
from logged import options

if __name__ == "__main__":
    workload, name = sys.argv[1:]
    mlflow.set_registry_uri("databricks-uc")
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(name="model", **options(workload, "mlflow-skinny"))
    version = mlflow.register_model(info.model_uri, name, env_pack="databricks_model_serving")
    sys.stdout.write(f"VERSION {version.version}\n")
