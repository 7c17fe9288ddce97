"""Lay out, in a replica's folder, what Triton reads at its start.

repository/model/config.pbtxt
repository/model/triton_python_backend_stub    a script that starts the right stub
repository/model/1/                            the shim: model.py and what it imports
backends/python/                               links into the Triton installation
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from serving.errors import LaunchError
from serving.protocol.plan import plan_inputs
from serving.spec import PythonEnvironment, ReplicaSpec
from serving.triton.config import MODEL, config_pbtxt
from serving.triton.home import BUNDLED_PYTHON, STUB, TritonHome
from serving.triton.shim import SHIM_FILES


def repository(directory: Path) -> Path:
    """Where a replica's model repository lies."""
    return directory / "repository"


def backends(directory: Path) -> Path:
    """Where a replica's backend folder lies."""
    return directory / "backends"


def wrapper(directory: Path) -> Path:
    """The script that Triton starts in place of its own stub."""
    return repository(directory) / MODEL / STUB


def lay_out(spec: ReplicaSpec, home: TritonHome) -> None:
    """Write the replica's model repository and backend folder, anew where they exist.

    Raises:
        LaunchError: This Triton cannot run the environment's Python.
    """
    stub = stub_for(spec.environment, home)
    for folder in (repository(spec.directory), backends(spec.directory)):
        shutil.rmtree(folder, ignore_errors=True)
    backend = backends(spec.directory) / "python"
    backend.mkdir(parents=True)
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        (backend / name).symlink_to(home.python_backend / name)
    # Never run, since the model has its own; without one the backend refuses to load.
    (backend / STUB).symlink_to(stub)

    model = repository(spec.directory) / MODEL
    (model / "1").mkdir(parents=True)
    for file in SHIM_FILES:
        shutil.copyfile(file, model / "1" / file.name)
    (model / "config.pbtxt").write_text(
        config_pbtxt(
            plan=plan_inputs(spec.signature),
            batching=spec.batching,
            device=spec.device,
            model_directory=spec.model_directory,
        )
    )
    script = wrapper(spec.directory)
    script.write_text(_wrapper_text(spec, home, stub))
    script.chmod(0o755)


def stub_for(environment: PythonEnvironment, home: TritonHome) -> Path:
    """Give the stub that runs the environment's Python version.

    Raises:
        LaunchError: There is none, or the interpreter has no shared library to embed.
    """
    version = environment.python_version
    stub = home.stubs.get(version)
    if stub is None:
        raise LaunchError(
            f"The model needs Python {version}; this Triton runs models of Python"
            f" {', '.join(home.stubs) or '(none)'}."
        )
    is_bundled = version == BUNDLED_PYTHON and home.has_bundled_python
    if not is_bundled and (environment.libpython is None or not environment.libpython.is_file()):
        raise LaunchError(
            f"This machine's Python {version} was built without a shared library"
            f" (libpython{version}.so.1.0), which Triton needs. Install a build made with"
            " --enable-shared."
        )
    return stub


def _wrapper_text(spec: ReplicaSpec, home: TritonHome, stub: Path) -> str:
    """The wrapper: the embedded Python becomes the environment because PATH leads to it.

    Nothing secret stands in it: the model's environment variables reach the stub through the
    server. A user's own thread setting wins.
    """
    environment = spec.environment.directory
    libraries = [spec.environment.libpython.parent] if spec.environment.libpython else []
    libraries += home.libraries
    path = shlex.quote(f"{environment / 'bin'}:/usr/bin:/bin")
    library_path = shlex.quote(":".join(map(str, libraries)))
    threads = "\n".join(
        f'export {name}="${{{name}:-{spec.batching.threads_per_instance}}}"'
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    )
    threads += (
        '\nexport OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"'  # spinning starves the others
    )
    return f"""\
#!/bin/sh
export PATH={path}
export VIRTUAL_ENV={shlex.quote(str(environment))} PYTHONNOUSERSITE=1
unset PYTHONHOME PYTHONPATH
{threads}
export LD_LIBRARY_PATH={library_path}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec {shlex.quote(str(stub))} "$@"
"""
