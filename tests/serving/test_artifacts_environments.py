"""Packed environments: unpacked, moved onto this machine's Python, verified, kept once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serving.artifacts import EnvironmentStore, collect, compile_bytecode
from serving.errors import ArtifactError
from tests.support.archives import member, pack, packed_environment, tar_of

STAGE = """
import sys
from pathlib import Path
from serving.artifacts import EnvironmentStore
name, _ = EnvironmentStore(root=Path(sys.argv[1])).stage(Path(sys.argv[2]), lambda text: None)
print(name)
"""


def silent(_: str) -> None:
    """Progress that nobody wants."""


@pytest.fixture
def store(tmp_path: Path) -> EnvironmentStore:
    return EnvironmentStore(root=tmp_path / "environments")


@pytest.fixture(scope="module")
def plain_tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed environment with nothing special; made once, for it takes a while."""
    return packed_environment(tmp_path_factory.mktemp("plain"))


def start_staging(store: EnvironmentStore, tar: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", STAGE, str(store.root), str(tar)], stdout=subprocess.PIPE, text=True
    )


def refusal(store: EnvironmentStore, tar: Path) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        store.stage(tar, silent)
    assert [path.name for path in store.root.glob("*") if path.name != ".locks"] == []
    return caught.value


def test_a_packed_environment_runs_from_its_new_place(
    store: EnvironmentStore, plain_tar: Path
) -> None:
    said: list[str] = []
    name, environment = store.stage(plain_tar, said.append)

    assert environment.directory == store.root / name
    assert environment.python_version == f"{sys.version_info.major}.{sys.version_info.minor}"
    code = "import sys, numpy, mlflow.pyfunc; print(sys.prefix)"
    ran = subprocess.run(
        [environment.python, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == str(environment.directory)
    assert environment.python.resolve().is_relative_to(environment.base_prefix)
    home = f"home = {environment.base_prefix / 'bin'}"
    assert home in (environment.directory / "pyvenv.cfg").read_text()
    assert store.find(name) == environment
    assert store.size_bytes(name) > 0
    assert any(text.startswith("Checking that mlflow imports") for text in said)


def test_lib64_becomes_a_link_again(store: EnvironmentStore, plain_tar: Path) -> None:
    _, environment = store.stage(plain_tar, silent)

    assert (environment.directory / "lib64").readlink() == Path("lib")


def test_the_same_environment_is_kept_once(
    store: EnvironmentStore, plain_tar: Path, tmp_path: Path
) -> None:
    first, _ = store.stage(plain_tar, silent)
    second, _ = store.stage(packed_environment(tmp_path / "b"), silent)
    other, _ = store.stage(packed_environment(tmp_path / "c", extra="another"), silent)

    held = {path.name for path in store.root.iterdir() if not path.name.startswith(".")}
    assert held == {first, second, other}
    assert other != first


def test_two_stagings_at_once_do_the_work_once(store: EnvironmentStore, tmp_path: Path) -> None:
    count = tmp_path / "starts"
    tar = packed_environment(
        tmp_path / "source",
        startup=f"open({str(count)!r}, 'a').write('x'); import time; time.sleep(1)",
    )

    both = [start_staging(store, tar) for _ in range(2)]
    names = [process.communicate(timeout=120)[0].strip() for process in both]

    assert [process.returncode for process in both] == [0, 0]
    assert names[0] == names[1]
    assert store.find(names[0]) is not None
    assert count.read_text() == "x"


def test_a_killed_staging_leaves_nothing_that_is_used_and_is_redone(
    store: EnvironmentStore, tmp_path: Path
) -> None:
    tar = packed_environment(tmp_path / "source", startup="import time; time.sleep(2)")
    process = start_staging(store, tar)
    wait_for(lambda: any(store.root.glob(".tmp-*/lib64")))
    process.send_signal(signal.SIGKILL)
    process.communicate()

    left_over = list(store.root.glob(".tmp-*"))
    assert left_over
    assert not [path for path in store.root.iterdir() if not path.name.startswith(".")]

    name, environment = store.stage(tar, silent)
    assert environment.python.exists()
    assert not [path for path in left_over if path.exists()]
    assert store.find(name) == environment


def test_left_over_folders_are_collected_and_those_in_work_are_not(
    store: EnvironmentStore, tmp_path: Path
) -> None:
    left_over = store.root / ".tmp-dead-12345678"
    left_over.mkdir(parents=True)
    tar = packed_environment(tmp_path / "source", startup="import time; time.sleep(2)")
    process = start_staging(store, tar)
    wait_for(lambda: len(list(store.root.glob(".tmp-*"))) == 2)

    gone = collect(store.root, lambda _: True)
    out, _ = process.communicate(timeout=120)

    assert gone == ["dead"]
    assert store.find(out.strip()) is not None


def test_an_unwanted_environment_is_collected(store: EnvironmentStore, plain_tar: Path) -> None:
    name, environment = store.stage(plain_tar, silent)

    assert collect(store.root, lambda wanted: wanted != name) == [name]

    assert not environment.directory.exists()
    assert store.find(name) is None


def test_an_environment_whose_interpreter_went_away_is_made_again(
    store: EnvironmentStore, plain_tar: Path
) -> None:
    name, environment = store.stage(plain_tar, silent)
    python = next((environment.directory / "bin").glob("python3.*"))
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert store.find(name) is None

    store.stage(plain_tar, silent)

    assert store.find(name) == environment


def test_bytecode_is_written(store: EnvironmentStore, tmp_path: Path) -> None:
    _, environment = store.stage(packed_environment(tmp_path, startup="x = 1"), silent)

    compile_bytecode(environment, silent)

    packages = next((environment.directory / "lib").glob("python*/site-packages"))
    assert list((packages / "__pycache__").glob("startup_for_test.*.pyc"))


# ---------------------------------------------------------------- refusals


def _environment_of(folder: Path, version: str, *extra: str) -> Path:
    packages = folder / "lib" / f"python{version}" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = /nowhere/bin\nversion = {version}.1\n")
    for name in extra:
        (packages / name).write_bytes(b"")
    return pack(folder, folder.parent / "model_environment.tar")


def test_a_python_that_is_not_here_is_named(store: EnvironmentStore, tmp_path: Path) -> None:
    error = refusal(store, _environment_of(tmp_path / "source", "3.99"))

    assert error.reason_code == "PYTHON_NOT_AVAILABLE"
    assert "Python 3.99" in error.message


def test_another_platform_is_named(store: EnvironmentStore, tmp_path: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    module = f"x.cpython-{version.replace('.', '')}-aarch64-linux-gnu.so"
    if os.uname().machine == "aarch64":
        module = module.replace("aarch64", "x86_64")

    error = refusal(store, _environment_of(tmp_path / "source", version, module))

    assert error.reason_code == "WRONG_PLATFORM"
    assert "linux-gnu" in error.message


def test_what_is_no_environment_is_refused(store: EnvironmentStore, tmp_path: Path) -> None:
    tar = tar_of(tmp_path / "windows.tar", (member("./Scripts/python.exe"), b"MZ"))

    assert refusal(store, tar).reason_code == "WRONG_PLATFORM"


def test_an_environment_without_mlflow_does_not_import(
    store: EnvironmentStore, tmp_path: Path
) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"

    error = refusal(store, _environment_of(tmp_path / "source", version))

    assert error.reason_code == "ENVIRONMENT_DOES_NOT_IMPORT"
    assert "No module named 'numpy'" in error.message
    assert str(store.root) not in error.message


def test_an_environment_that_breaks_mlflow_does_not_import(
    store: EnvironmentStore, tmp_path: Path
) -> None:
    tar = packed_environment(tmp_path, startup="import sys; sys.modules['mlflow.pyfunc'] = None")

    assert refusal(store, tar).reason_code == "ENVIRONMENT_DOES_NOT_IMPORT"


def test_a_full_disk_is_said_before_unpacking(
    store: EnvironmentStore, plain_tar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.artifacts.files.SPARE_BYTES", 2**60)

    error = refusal(store, plain_tar)

    assert error.reason_code == "NO_SPACE"
    assert re.search(r"needs \d+ MiB", error.message)


def test_the_interpreter_named_in_the_environment_is_used_where_it_is_here(
    store: EnvironmentStore, plain_tar: Path
) -> None:
    _, environment = store.stage(plain_tar, silent)

    assert environment.base_prefix == Path(sys.base_prefix)
    facts = json.loads((environment.directory / "shoal-environment.json").read_text())
    assert facts["base_prefix"] == sys.base_prefix


def wait_for(condition: object, limit_s: float = 60) -> None:
    assert callable(condition)
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
