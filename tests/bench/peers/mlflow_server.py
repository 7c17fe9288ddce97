"""MLflow's own scoring server, two processes; it has no batching.

`python -m tests.bench.peers.mlflow_server FOLDER`: saves the model there, and becomes the server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import mlflow

HERE = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    sys.path.insert(0, str(HERE))  # as the script that logs it for Shoal has it
    from logged import options

    folder = sys.argv[1]
    mlflow.pyfunc.save_model(folder, **options(os.environ["BENCH_WORKLOAD"], "mlflow"))
    processes = max(2, int(os.environ["BENCH_COPIES"]))
    serve = [sys.executable, "-m", "mlflow", "models", "serve", "--model-uri", folder]
    serve += ["--env-manager", "local", "--host", "127.0.0.1", "--port", os.environ["BENCH_PORT"]]
    os.execv(sys.executable, [*serve, "--workers", str(processes)])
