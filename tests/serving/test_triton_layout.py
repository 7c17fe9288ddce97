"""Finding Triton, and trying its parts before it is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from serving.errors import LaunchError
from serving.protocol.plan import plan_inputs
from serving.replica.environment import server_environment
from serving.spec import Batching, PythonEnvironment, ReplicaSpec
from serving.triton import repository, shared_memory
from serving.triton.home import STUB, find_home, server_version
from serving.triton.preflight import check_environment, check_stub
from serving.triton.shim import SHIM_FILES
from tests.support.replicas import SavedModel, make_spec


@pytest.fixture
def spec(
    tmp_path: Path, model_environment: PythonEnvironment, doubling_model: SavedModel
) -> ReplicaSpec:
    """A replica's spec with a folder."""
    return replace(make_spec("abcde", model_environment, doubling_model), directory=tmp_path)


def make_home(home: Path, *files: str) -> Path:
    """A folder that looks like an installed Triton."""
    for name in ("bin/tritonserver", "backends/python/libtriton_python.so", *files):
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    return home


def test_the_packaged_triton_is_found_with_its_version() -> None:
    home = find_home(None)

    assert {"3.10", "3.11", "3.12", "3.13"} <= set(home.stubs)
    assert server_version(home.server, ":".join(map(str, home.libraries))) == "2.51.0"


def test_the_environment_variable_names_another_triton(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_home(tmp_path / "triton", f"python_backend_stubs/3.11/{STUB}")
    monkeypatch.setenv("SHOAL_TRITON_HOME", str(place))

    home = find_home(None)

    assert home.server == place / "bin" / "tritonserver"
    assert set(home.stubs) == {"3.11"}


def test_a_container_s_single_stub_tells_its_python_by_what_it_links(tmp_path: Path) -> None:
    place = make_home(tmp_path / "tritonserver", f"backends/python/{STUB}")
    (place / "backends" / "python" / STUB).write_bytes(b"\x7fELF..\0libpython3.10.so.1.0\0..")

    assert set(find_home(place).stubs) == {"3.10"}


def test_an_incomplete_triton_is_refused_by_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="it has no bin/tritonserver"):
        find_home(tmp_path)


def test_stub_and_environment_pass_their_trial(spec: ReplicaSpec) -> None:
    repository.lay_out(spec, find_home(None))

    check_stub(repository.wrapper(spec.directory), server_environment(spec))
    check_environment(spec.environment, server_environment(spec))


def test_laying_out_twice_leaves_one_repository(spec: ReplicaSpec) -> None:
    repository.lay_out(spec, find_home(None))
    repository.lay_out(spec, find_home(None))

    files = sorted(f.name for f in repository.repository(spec.directory).rglob("*") if f.is_file())
    assert files == ["config.pbtxt", *sorted(file.name for file in SHIM_FILES), STUB]


def test_a_static_interpreter_is_refused(spec: ReplicaSpec) -> None:
    static = replace(spec, environment=replace(spec.environment, libpython=None))

    with pytest.raises(LaunchError, match="built without a shared library"):
        repository.lay_out(static, find_home(None))


def test_a_python_without_a_stub_is_refused(spec: ReplicaSpec) -> None:
    ancient = replace(spec, environment=replace(spec.environment, python_version="3.7"))

    with pytest.raises(
        LaunchError, match=r"needs Python 3\.7; this Triton runs models of Python 3"
    ):
        repository.lay_out(ancient, find_home(None))


def test_a_stub_that_cannot_be_loaded_is_refused(spec: ReplicaSpec, tmp_path: Path) -> None:
    broken = tmp_path / "lib" / "libpython3.11.so.1.0"
    broken.parent.mkdir()
    broken.write_text("not a library")
    spec = replace(spec, environment=replace(spec.environment, libpython=broken))
    repository.lay_out(spec, find_home(None))

    with pytest.raises(LaunchError, match=r"misses a library on this machine: .*libpython"):
        check_stub(repository.wrapper(spec.directory), server_environment(spec))


def test_an_environment_that_does_not_import_is_refused(spec: ReplicaSpec, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\necho ImportError: no numpy >&2; exit 1")
    (tmp_path / "bin" / "python").chmod(0o755)

    with pytest.raises(LaunchError, match="cannot import numpy and mlflow: ImportError: no numpy"):
        check_environment(replace(spec.environment, directory=tmp_path), {"PATH": "/bin"})


def test_secrets_of_the_portal_do_not_reach_the_model(
    spec: ReplicaSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_SECRET_KEY", "hidden")
    monkeypatch.setenv("DATABASE_URL", "hidden")
    spec = replace(spec, environment_variables={"MINE": "yes", "PATH": "/opt/bin"})

    variables = server_environment(spec)

    assert "hidden" not in variables.values()
    assert variables["MINE"] == "yes"
    assert variables["PATH"] == f"{spec.environment.directory}/bin:/opt/bin"


def test_large_rows_get_a_large_region_from_the_start() -> None:
    shape = [-1, 3, 224, 224]
    inputs = [{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": shape}}]
    plan = plan_inputs({"inputs": inputs})

    large = shared_memory.region_bytes(plan, Batching(max_batch_size=32))

    assert large == pytest.approx(1.2 * 2 * 32 * 602112, rel=0.05)
    assert shared_memory.region_bytes(plan_inputs(None), Batching()) == shared_memory.LEAST_BYTES


def test_regions_of_one_replica_only_are_removed(tmp_path: Path) -> None:
    mine = shared_memory.region_prefix("abcde", tmp_path / "mine")
    other = shared_memory.region_prefix("abcde", tmp_path / "other")
    regions = [shared_memory.SHARED_MEMORY / f"{prefix}region" for prefix in (mine, other)]
    for region in regions:
        region.write_bytes(b"")

    shared_memory.remove_regions(mine)

    assert [region.exists() for region in regions] == [False, True]
    regions[1].unlink()
