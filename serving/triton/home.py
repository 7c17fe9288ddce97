"""Find the Triton Inference Server on this machine and know its parts."""

from __future__ import annotations

import importlib.util
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from serving.errors import LaunchError
from serving.replica.processes import spawn

VARIABLE = "SHOAL_TRITON_HOME"
NGC_HOME = Path("/opt/tritonserver")
STUB = "triton_python_backend_stub"
BUNDLED_PYTHON = "3.13"
"""The PyPI build's stub for this version carries its own libpython."""

VERSION_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonHome:
    """An installed Triton.

    Attributes:
        server: The `tritonserver` program.
        python_backend: Folder with `libtriton_python.so` and `triton_python_backend_utils.py`.
        stubs: Python version ("3.11") to the Python backend's stub for it.
        libraries: Folders that the server and a stub need in `LD_LIBRARY_PATH`.
        has_bundled_python: Whether the stub for `BUNDLED_PYTHON` needs no libpython.
    """

    server: Path
    python_backend: Path
    stubs: Mapping[str, Path]
    libraries: tuple[Path, ...]
    has_bundled_python: bool


def find_home(configured: Path | None) -> TritonHome:
    """Give the configured Triton, else the one nvidia-pytriton carries, else NGC's.

    Args:
        configured: The replica's own setting; None to look in `SHOAL_TRITON_HOME` and the usual
            places.

    Raises:
        LaunchError: There is none, or the place named holds no complete one.
    """
    wanted = configured or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if wanted is not None:
        return _read_home(wanted)
    for place in (_packaged_home(), NGC_HOME):
        if place is not None and (place / "bin" / "tritonserver").is_file():
            return _read_home(place)
    raise LaunchError(
        "The Triton Inference Server is not installed here. Install the nvidia-pytriton package,"
        f" or name an installed Triton in {VARIABLE}."
    )


@cache
def server_version(server: Path, library_path: str) -> str:
    """Ask the server program for its version: it has no option for it, but writes it at its start.

    Returns:
        Such as "2.51.0"; "unknown" where it does not say so within 10 s.
    """
    options = ("http", "grpc", "metrics", "gpu-metrics")
    process = spawn(
        [
            str(server),
            "--model-repository=/nonexistent",
            "--model-control-mode=none",
            *(f"--allow-{option}=false" for option in options),
            "--pinned-memory-pool-byte-size=0",
        ],
        environment={"LD_LIBRARY_PATH": library_path, "CUDA_VISIBLE_DEVICES": ""},
    )
    impatience = threading.Timer(VERSION_TIMEOUT_S, process.kill)
    impatience.start()
    try:
        with process:
            assert process.stdout is not None  # noqa: S101 - spawn always gives the pipe
            for line in process.stdout:
                found = re.search(rb"server_version\s*\|\s*([\w.+-]+)", line)
                if found:
                    process.kill()
                    return found[1].decode()
    finally:
        impatience.cancel()
    return "unknown"


def _packaged_home() -> Path | None:
    spec = importlib.util.find_spec("pytriton")
    return Path(spec.origin).parent / "tritonserver" if spec and spec.origin else None


def _read_home(home: Path) -> TritonHome:
    server = home / "bin" / "tritonserver"
    backend = home / "backends" / "python"
    for file in (server, backend / "libtriton_python.so"):
        if not file.is_file():
            raise LaunchError(
                f"The Triton installation is incomplete: it has no {file.relative_to(home)}."
            )
    if not os.access(server, os.X_OK):
        raise LaunchError("The Triton installation's bin/tritonserver may not be executed.")
    packaged = home.parent.parent / "nvidia_pytriton.libs"
    libraries = [place for place in (packaged, home / "lib") if place.is_dir()]
    return TritonHome(
        server=server,
        python_backend=backend,
        stubs=_find_stubs(home),
        libraries=tuple(libraries),
        has_bundled_python=any(packaged.glob("libpython3-*.13.so*")),
    )


def _find_stubs(home: Path) -> dict[str, Path]:
    stubs = {
        stub.parent.name: stub for stub in sorted(home.glob(f"python_backend_stubs/3.*/{STUB}"))
    }
    own = home / "backends" / "python" / STUB
    if own.is_file():
        # NGC's containers have one stub; the Python it was built for stands in what it links.
        linked = re.search(rb"libpython(3\.\d+)\.so", own.read_bytes())
        if linked:
            stubs.setdefault(linked[1].decode(), own)
    return stubs
