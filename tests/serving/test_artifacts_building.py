"""Environments built from requirements with a real venv and a real pip, from wheels made here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from serving.artifacts import (
    EnvironmentStore,
    build_environment,
    build_key,
    complete_requirements,
    find_interpreter,
    link_model,
)
from serving.errors import ArtifactError
from serving.spec import PythonEnvironment
from tests.support.archives import wheel

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
REQUIREMENTS = "--no-index\n--find-links code\nmlflow\nnumpy\n"


def silent(_: str) -> None:
    """Progress that nobody wants."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that brings its packages along."""
    code = tmp_path / "model" / "code"
    wheel(code, "mlflow", {"mlflow/__init__.py": "__version__ = '1.0'\n", "mlflow/pyfunc.py": ""})
    wheel(code, "numpy", {"numpy.py": ""})
    return tmp_path / "model"


def build(tmp_path: Path, model: Path, requirements: str = REQUIREMENTS) -> PythonEnvironment:
    interpreter = find_interpreter(VERSION)
    assert interpreter is not None
    return build_environment(
        EnvironmentStore(root=tmp_path / "environments"),
        key=build_key(requirements, VERSION, model="1"),
        interpreter=interpreter,
        requirements=requirements,
        model_directory=model,
        log_file=tmp_path / "build.log",
        progress=silent,
    )


def test_requirements_become_an_environment_with_a_log(tmp_path: Path, model: Path) -> None:
    environment = build(tmp_path, model)

    subprocess.run([environment.python, "-I", "-c", "import mlflow.pyfunc, numpy"], check=True)
    log = (tmp_path / "build.log").read_text()
    assert "--find-links code" in log
    assert "Successfully installed" in log
    assert log.rstrip().endswith("Done.")


def test_the_same_requirements_are_built_once(tmp_path: Path, model: Path) -> None:
    first = build(tmp_path, model)
    (tmp_path / "build.log").unlink()

    assert build(tmp_path, model) == first
    assert not (tmp_path / "build.log").exists()


def test_a_requirement_that_does_not_exist_is_told_with_the_log(
    tmp_path: Path, model: Path
) -> None:
    with pytest.raises(ArtifactError) as caught:
        build(tmp_path, model, f"{REQUIREMENTS}no-such-package-of-shoal\n")

    assert caught.value.reason_code == "ENVIRONMENT_DOES_NOT_BUILD"
    assert "no-such-package-of-shoal" in (tmp_path / "build.log").read_text()
    assert not [p for p in (tmp_path / "environments").iterdir() if not p.name.startswith(".")]


def test_mlflow_is_added_where_the_requirements_lack_it() -> None:
    assert complete_requirements("torch==2\n", "3.1.0") == "torch==2\nmlflow==3.1.0\n"
    assert complete_requirements("", "") == "mlflow\n"
    for listed in ("mlflow==2\n", "torch\nmlflow-skinny\n", "MLflow>=3\n"):
        assert complete_requirements(listed, "3.1.0") == listed


def test_the_key_knows_python_and_lines_and_not_their_order() -> None:
    key = build_key("a\nb\n", "3.11", model="1")

    assert build_key("b\n\na", "3.11", model="2") == key
    assert build_key("a\nb\n", "3.12", model="1") != key
    assert build_key("a\n", "3.11", model="1") != key


def test_requirements_that_name_files_belong_to_one_model() -> None:
    for text in ("code/x.whl\n", "-r other.txt\n", "./local\n", "x @ file:///x\n"):
        assert build_key(text, "3.11", model="1") != build_key(text, "3.11", model="2"), text


def test_a_model_is_linked_without_its_tars(tmp_path: Path, model: Path) -> None:
    (model / "MLmodel").write_text("flavors: {}\n")
    (model / "_databricks").mkdir()
    (model / "_databricks" / "model_environment.tar").write_bytes(b"x")

    link_model(model, tmp_path / "models" / "7", silent)
    link_model(model, tmp_path / "models" / "7", silent)

    linked = tmp_path / "models" / "7"
    assert (linked / "MLmodel").samefile(model / "MLmodel")
    assert (linked / "code").is_dir()
    assert not (linked / "_databricks").exists()
