"""Write requirements.lock: resolve what pyproject.toml asks for in a fresh environment, freeze it.

nvidia-pytriton is installed without its dependencies, since only the Triton it carries is used.
Local version labels (`+cpu`) are dropped, so that each machine takes its own build.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WITHOUT_DEPENDENCIES = "nvidia-pytriton"
NEVER_FROZEN = re.compile(r"^((nvidia|cuda)[-_a-z0-9]*|triton)==")  # a CUDA torch brings these
HEADER = (
    "# Everything, pinned. Written by `make lock` from pyproject.toml; installed with --no-deps.\n"
)


def main() -> None:
    """Resolve and freeze."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    alone = [w for w in wanted if w.startswith(WITHOUT_DEPENDENCIES)]
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "-q", *(w for w in wanted if w not in alone)], check=True)
        frozen = subprocess.run([*pip, "freeze"], check=True, capture_output=True, text=True).stdout
    lines = [re.sub(r"\+\w+$", "", line) for line in frozen.splitlines()]
    lines = [line for line in lines if not NEVER_FROZEN.match(line)] + alone
    (ROOT / "requirements.lock").write_text(HEADER + "\n".join(sorted(lines, key=str.lower)) + "\n")


if __name__ == "__main__":
    main()
