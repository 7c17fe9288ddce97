"""Build an environment from a model's requirements, for versions that bring none."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from serving.artifacts.environments import EnvironmentStore, verify
from serving.artifacts.files import Reason, folder_that_appears, plain_environment, remove_tree, run
from serving.artifacts.interpreters import Interpreter
from serving.errors import ArtifactError
from serving.spec import PythonEnvironment

BUILD_LIMIT_S = 3000
NAMES_MLFLOW = re.compile(r"^\s*mlflow(-skinny)?\b", re.M | re.I)
REFERS_TO_FILES = re.compile(r"^\s*(-|\.|/|\S+\.(whl|txt|tar\.gz|zip)\b)|@\s*file:|\bcode/", re.M)


def complete_requirements(requirements: str, mlflow_version: str) -> str:
    """The requirements with mlflow among them: nothing can load the model without it."""
    if NAMES_MLFLOW.search(requirements):
        return requirements
    pinned = f"mlflow=={mlflow_version}" if mlflow_version else "mlflow"
    return f"{requirements.rstrip()}\n{pinned}\n".lstrip()


def build_key(requirements: str, python_version: str, *, model: str) -> str:
    """The name of the environment that these requirements lead to.

    Args:
        requirements: The text of requirements.txt.
        python_version: "3.11".
        model: Names the model version; it counts only where the requirements refer to its files.
    """
    lines = sorted(line.strip() for line in requirements.splitlines() if line.strip())
    parts = ["built", python_version, *lines]
    if REFERS_TO_FILES.search(requirements):
        parts.append(model)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def build_environment(
    store: EnvironmentStore,
    *,
    key: str,
    interpreter: Interpreter,
    requirements: str,
    model_directory: Path,
    log_file: Path,
    progress: Callable[[str], None],
    hold: Callable[[str], None] = lambda _: None,
) -> PythonEnvironment:
    """Make a virtual environment and install `requirements` into it, unless it is here already.

    Args:
        store: Where the environment goes.
        key: Its name there, from `build_key`.
        interpreter: The Python that it is made from.
        requirements: The text of requirements.txt.
        model_directory: Where pip runs, so that requirements may name files of the model.
        log_file: Gets what pip says.
        progress: Told what is being done; see `Progress`.
        hold: As in `EnvironmentStore.stage`.

    Raises:
        ArtifactError: `ENVIRONMENT_DOES_NOT_BUILD` or `ENVIRONMENT_DOES_NOT_IMPORT`.
    """
    with store.locked(key, progress):
        hold(key)
        found = store.find(key)
        if found is not None:
            return found
        remove_tree(store.root / key)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with folder_that_appears(store.root, key) as folder, log_file.open("wb") as log:
            _install(folder, interpreter, requirements, model_directory, log, progress)
            verify(folder, progress)
            _say(log, "The environment imports numpy and mlflow. Done.")
            size = sum(path.lstat().st_size for path in folder.rglob("*"))
            return store.publish(folder, store.made_from(key, interpreter), size)


def _install(
    folder: Path,
    interpreter: Interpreter,
    requirements: str,
    model_directory: Path,
    log: IO[bytes],
    progress: Callable[[str], None],
) -> None:
    started = time.monotonic()
    listed = folder / "requirements.txt"
    listed.write_text(requirements)

    def waiting(_: float) -> None:
        seconds = time.monotonic() - started
        progress(f"Installing the model's requirements, {seconds:.0f} s")

    _say(log, f"Building a Python {interpreter.version} environment from these requirements:")
    _say(log, requirements.rstrip())
    python = folder / "bin" / "python"
    make: list[str | Path] = [interpreter.python, "-I", "-m", "venv", folder]
    fill: list[str | Path] = [python, "-I", "-m", "pip", "install", "--no-input"]
    fill += ["--disable-pip-version-check", "--progress-bar", "off", "--no-compile"]
    fill += ["-r", listed]  # bytecode is written later, beside the first start
    for arguments in (make, fill):
        status, _ = run(
            arguments,
            environment=plain_environment(folder) | {"HOME": os.environ.get("HOME", "/")},
            limit_s=BUILD_LIMIT_S,
            waiting=waiting,
            directory=model_directory,
            output=open_again(log),
        )
        if status != 0:
            why = (
                "took too long" if status is None else "failed; its last lines are in the build log"
            )
            raise ArtifactError(
                Reason.ENVIRONMENT_DOES_NOT_BUILD,
                f"Installing the model's requirements {why}. Mend requirements.txt and register "
                "the model again.",
            )


def open_again(log: IO[bytes]) -> IO[bytes]:
    """A second handle on the log, for a program to write to."""
    log.flush()
    return Path(log.name).open("ab")


def _say(log: IO[bytes], text: str) -> None:
    log.seek(0, 2)
    log.write(f"{text}\n".encode())
    log.flush()
