"""Model environments and MLflow models for tests: made in a second, nothing is installed."""

from __future__ import annotations

import logging
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

from serving.spec import PythonEnvironment


def make_environment(directory: Path) -> PythonEnvironment:
    """Make a virtual environment at `directory` that Triton's stub can become.

    It is a plain venv of the base interpreter; a `.pth` file adds the packages that the tests run
    with (numpy, pandas, mlflow-skinny, torch), so nothing is installed. A venv of a venv would
    not do: the stub needs the standard library of the base.
    """
    python = Path(sys.base_prefix) / "bin" / f"python{_minor_version()}"
    subprocess.run([python, "-m", "venv", "--without-pip", directory], check=True)
    site_packages = directory / "lib" / f"python{_minor_version()}" / "site-packages"
    (site_packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return PythonEnvironment(
        directory=directory,
        python_version=_minor_version(),
        base_prefix=Path(sys.base_prefix),
        libpython=_libpython(),
    )


def save_model(
    directory: Path, python_model: object, input_example: object | None = None, **options: Any
) -> dict[str, Any] | None:
    """Save an MLflow pyfunc model at `directory`; gives its signature as a dict, if it has one.

    Args:
        directory: Must not exist yet.
        python_model: A `PythonModel` (pickled by value, so its class may stand in the test), or
            the source text of a module that calls `mlflow.models.set_model`.
        input_example: An array, a dict of arrays or a DataFrame; the signature's inputs are made
            from it unless `signature` is given.
        **options: For `mlflow.pyfunc.save_model`, such as `signature`.
    """
    import cloudpickle  # type: ignore[import-untyped]  # has no stubs
    import mlflow

    if isinstance(python_model, str):
        directory.parent.mkdir(parents=True, exist_ok=True)
        source = directory.parent / f"{directory.name}_model.py"
        source.write_text(python_model)
        python_model = str(source)
    elif type(python_model).__module__ in sys.modules:
        cloudpickle.register_pickle_by_value(sys.modules[type(python_model).__module__])
    if input_example is not None:
        options.setdefault("signature", _signature(input_example))
    logging.getLogger("mlflow").setLevel(logging.ERROR)  # its advice on pickles and examples
    with warnings.catch_warnings(record=True):  # and on type hints; MLflow undoes "ignore"
        warnings.simplefilter("always")
        mlflow.pyfunc.save_model(
            str(directory),
            python_model=python_model,
            input_example=input_example,
            pip_requirements=[f"mlflow-skinny=={mlflow.__version__}"],  # inferring takes seconds
            **options,
        )
        signature = mlflow.models.Model.load(str(directory)).signature
    return None if signature is None else dict(signature.to_dict())


def _signature(input_example: object) -> object:
    """Inputs only. MLflow's own inference needs SciPy, which mlflow-skinny does not bring."""
    import numpy as np
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec

    if isinstance(input_example, pd.DataFrame):
        columns = {
            "O": DataType.string,
            "f": DataType.double,
            "i": DataType.long,
            "b": DataType.boolean,
        }
        return ModelSignature(
            Schema(
                [
                    ColSpec(columns.get(d.kind, DataType.string), str(n))
                    for n, d in input_example.dtypes.items()
                ]
            )
        )
    named = input_example if isinstance(input_example, dict) else {None: input_example}
    arrays = {name: np.asarray(value) for name, value in named.items()}
    return ModelSignature(
        Schema([TensorSpec(a.dtype, (-1, *a.shape[1:]), name) for name, a in arrays.items()])
    )


def _minor_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _libpython() -> Path | None:
    library = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME") or "")
    return library if library.is_file() and library.suffix != ".a" else None
