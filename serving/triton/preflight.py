"""Try the parts that would make Triton hang or fail without a word.

A stub that dies before it has shaken hands with the server leaves the server waiting for ever, so
the loader and the environment are tried before.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from serving.errors import LaunchError
from serving.spec import PythonEnvironment

TIMEOUT_S = 120
EXPECTED = "Expected 9 arguments, found 1 arguments."
MISSING_LIBRARY = 127  # the loader's exit code


def check_stub(wrapper: Path, variables: Mapping[str, str]) -> None:
    """Run the wrapper without arguments: the stub must start and ask for them.

    Raises:
        LaunchError: It cannot be loaded, or is something else.
    """
    code, output = _run([str(wrapper)], variables)
    if code == 1 and EXPECTED in output:
        return
    if code == MISSING_LIBRARY:
        raise LaunchError(
            f"Triton's Python stub misses a library on this machine: {_last_line(output)}"
        )
    raise LaunchError(
        f"Triton's Python stub does not start (exit code {code}): {_last_line(output)}"
    )


def check_environment(environment: PythonEnvironment, variables: Mapping[str, str]) -> None:
    """Import in the model's environment what the shim needs.

    Raises:
        LaunchError: It does not import.
    """
    code, output = _run([str(environment.python), "-c", "import numpy, mlflow.pyfunc"], variables)
    if code != 0:
        raise LaunchError(
            f"The model's environment cannot import numpy and mlflow: {_last_line(output)}"
        )


def _run(command: list[str], variables: Mapping[str, str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"it did not end within {TIMEOUT_S} s"
    except OSError as exc:
        return 126, exc.strerror or str(exc)
    return done.returncode, done.stdout.decode(errors="replace")


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it said nothing"
