"""The unmodified clients in a small virtual environment of their own, as a user would have it.

`env_pack` packs the whole environment that it runs in, so it must not be the tests' own. It is
made once and kept in `.cache/`, named by what is in it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def _pinned(name: str) -> str:
    name = "mlflow-skinny" if name == "mlflow" else name.partition("[")[0]
    lock = (ROOT / "requirements.lock").read_text()
    found = re.search(rf"^{name}==(.*)$", lock, re.M)
    assert found, f"{name} is not in requirements.lock"
    return found.group(1)


SMALL = ("mlflow-skinny", "numpy", "pandas")
"""Enough to log and register a pyfunc model; quick to pack."""
FULL = ("mlflow", "databricks-sdk", "torch")
"""What the documentation tells users to install."""
TRITON = ("tritonclient[http]", "numpy")
"""The Open Inference Protocol's client, with gevent, which the tests' own process is spared."""


def client_python(names: tuple[str, ...] = SMALL) -> Path:
    """The interpreter of an environment with these packages, made now if it is not there.

    Versions are the lock file's; `mlflow` follows `mlflow-skinny`.
    """
    wanted = [f"{name}=={_pinned(name)}" for name in names]
    digest = hashlib.sha256(" ".join([sys.version, *wanted]).encode()).hexdigest()[:12]
    folder = ROOT / ".cache" / f"client-{digest}"
    python, done = folder / "bin" / "python", folder / "installed"
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs of tests may want it at once
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            (folder / "lib64").unlink(missing_ok=True)  # else every package is packed twice
            pip = [str(python), "-m", "pip", "install", "-q", *wanted]
            subprocess.run(pip, check=True, capture_output=True)
            done.touch()
    return python


def client_variables(url: str, token: str, work: Path) -> dict[str, str]:
    """What a user exports before running a script: host, token, and a runtime's name."""
    kept = {k: v for k, v in os.environ.items() if k in {"HOME", "LANG"} or k.startswith("PIP_")}
    return kept | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "TMPDIR": str(work),
        "DATABRICKS_HOST": url,
        "DATABRICKS_TOKEN": token,
        "DATABRICKS_ENV_VERSION": "5",
        "DATABRICKS_ACCELERATOR": "GPU",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
