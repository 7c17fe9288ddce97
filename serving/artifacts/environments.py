"""The environment store: each environment once, under the hash of its content."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from serving.artifacts.archives import Archive, inspect_archive
from serving.artifacts.files import (
    Progress,
    Reason,
    folder_that_appears,
    locked,
    plain_environment,
    remove_tree,
    run,
)
from serving.artifacts.interpreters import (
    Interpreter,
    find_interpreter,
    find_libpython,
    minor_version,
)
from serving.artifacts.unpacking import unpack
from serving.errors import ArtifactError
from serving.spec import PythonEnvironment

MARKER = "shoal-environment.json"
VERIFY_LIMIT_S = 300
COMPILE_LIMIT_S = 1200
VERIFY = """
import json, sys
import numpy
import mlflow.pyfunc
print("shoal-verified " + json.dumps({"prefix": sys.prefix, "mlflow": mlflow.__version__}))
"""
VERSION_LINE = re.compile(r"^version(?:_info)?[ \t]*=[ \t]*(\S+)", re.M)
HOME_LINE = re.compile(r"^home[ \t]*=[ \t]*(.*?)[ \t\r]*$", re.M)
SYSTEM_PACKAGES_LINE = re.compile(r"^include-system-site-packages[ \t]*=.*\n?", re.M)
PYTHON_PROGRAM = re.compile(r"python(\d+(\.\d+)?)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentStore:
    """Environments under `root`, run by this machine's interpreters.

    Attributes:
        root: Holds a folder an environment.
        python_homes: Prefixes of interpreters besides those on PATH.
    """

    root: Path
    python_homes: Sequence[str] = ()

    def find(self, content_hash: str) -> PythonEnvironment | None:
        """The environment if it is here, whole, and its interpreter still is."""
        directory = self.root / content_hash
        try:
            facts = json.loads((directory / MARKER).read_text())
        except (OSError, ValueError):
            return None
        environment = PythonEnvironment(
            directory=directory,
            python_version=facts["python_version"],
            base_prefix=Path(facts["base_prefix"]),
            libpython=Path(facts["libpython"]) if facts["libpython"] else None,
        )
        return environment if environment.python.exists() else None

    def size_bytes(self, content_hash: str) -> int:
        """What the environment took when it was made; 0 when it is not here."""
        try:
            return int(json.loads((self.root / content_hash / MARKER).read_text())["size_bytes"])
        except (OSError, ValueError, KeyError):
            return 0

    def stage(
        self, tar: Path, progress: Progress, *, hold: Callable[[str], None] = lambda _: None
    ) -> tuple[str, PythonEnvironment]:
        """Unpack, relocate and verify the packed environment in `tar`, unless it is here already.

        Args:
            tar: MLflow's `model_environment.tar`.
            progress: Told what is being done; see `Progress`.
            hold: Called with the content hash while its lock is held, before any work: the caller
                notes that the environment is in use, so that a collector leaves it alone.

        Returns:
            The content hash and the environment.

        Raises:
            ArtifactError: Any of `Reason`.
        """
        archive = inspect_archive(tar, progress, "environment")
        content_hash = archive.content_hash
        with self.locked(content_hash, progress):
            hold(content_hash)
            found = self.find(content_hash)
            if found is None:
                interpreter = self._interpreter_for(archive)
                remove_tree(self.root / content_hash)
                with folder_that_appears(self.root, content_hash) as folder:
                    unpack(tar, archive, folder, progress, "environment")
                    found = self._settle(folder, content_hash, archive, interpreter, progress)
            return content_hash, found

    def locked(self, content_hash: str, progress: Progress) -> AbstractContextManager[None]:
        """Hold the environment's lock."""
        return locked(
            self.root,
            content_hash,
            waiting=lambda: progress("Another version is preparing the same environment"),
        )

    def _interpreter_for(self, archive: Archive) -> Interpreter | None:
        """This machine's interpreter for the archive; None when it brings its own."""
        version = _version_of(archive)
        here = platform_name()
        if archive.platforms and here not in archive.platforms:
            found = ", ".join(sorted(archive.platforms))
            raise ArtifactError(
                Reason.WRONG_PLATFORM,
                f"The environment was packed for {found}; this server is {here}. Pack it on a "
                "machine of that kind.",
            )
        if version in archive.has_standard_library:
            return find_interpreter(version, self.python_homes)
        return self._at_home(archive.pyvenv_cfg, version) or self.interpreter(version)

    @staticmethod
    def _at_home(pyvenv_cfg: str, version: str) -> Interpreter | None:
        """The very installation that the environment was made from, where it is on this machine."""
        home = HOME_LINE.search(pyvenv_cfg)
        if home is None or not Path(home[1]).is_absolute():
            return None
        prefix = Path(home[1]).parent
        python = prefix / "bin" / f"python{version}"
        if not (python.is_file() and (prefix / "lib" / f"python{version}" / "os.py").is_file()):
            return None
        return Interpreter(
            python=python,
            version=version,
            prefix=prefix,
            libpython=find_libpython(version, prefix),
            platform=platform_name(),
        )

    def interpreter(self, version: str) -> Interpreter:
        """This machine's interpreter of a minor version.

        Raises:
            ArtifactError: `PYTHON_NOT_AVAILABLE`.
        """
        found = find_interpreter(version, self.python_homes)
        if found is None:
            raise ArtifactError(
                Reason.PYTHON_NOT_AVAILABLE,
                f"The model needs Python {version}, which this server does not have. Install it "
                "here (on PATH, or named in SHOAL_PYTHON_HOMES), or register the model from "
                f"Python {sys.version_info.major}.{sys.version_info.minor}.",
            )
        return found

    def _settle(
        self,
        folder: Path,
        content_hash: str,
        archive: Archive,
        interpreter: Interpreter | None,
        progress: Progress,
    ) -> PythonEnvironment:
        if archive.has_lib64_copy:
            (folder / "lib64").symlink_to("lib")
        environment = self._self_contained(folder, content_hash, archive, progress)
        if environment is None:
            interpreter = interpreter or self.interpreter(_version_of(archive))
            relocate(folder, interpreter, archive.pyvenv_cfg)
            verify(folder, progress)
            environment = self.made_from(content_hash, interpreter)
        return self.publish(folder, environment, archive.size_bytes)

    def _self_contained(
        self, folder: Path, content_hash: str, archive: Archive, progress: Progress
    ) -> PythonEnvironment | None:
        """The environment on the interpreter that it brings; None where that does not run here."""
        version = _version_of(archive)
        if version not in archive.has_standard_library:
            return None
        python = folder / "bin" / "python"
        if not python.exists() and (folder / "bin" / f"python{version}").exists():
            python.symlink_to(f"python{version}")
        try:
            verify(folder, progress)
        except (ArtifactError, OSError):
            return None
        own = find_libpython(version, folder)
        directory = self.root / content_hash
        return PythonEnvironment(
            directory=directory,
            python_version=version,
            base_prefix=directory,
            libpython=directory / own.relative_to(folder)
            if own is not None and own.is_relative_to(folder)
            else own,
        )

    def made_from(self, content_hash: str, interpreter: Interpreter) -> PythonEnvironment:
        """The environment under `content_hash`, run by `interpreter`."""
        return PythonEnvironment(
            directory=self.root / content_hash,
            python_version=interpreter.version,
            base_prefix=interpreter.prefix,
            libpython=interpreter.libpython,
        )

    @staticmethod
    def publish(folder: Path, environment: PythonEnvironment, size_bytes: int) -> PythonEnvironment:
        """Write what `find` reads into the folder that is about to appear."""
        facts = {
            "python_version": environment.python_version,
            "base_prefix": str(environment.base_prefix),
            "libpython": str(environment.libpython or ""),
            "size_bytes": size_bytes,
        }
        (folder / MARKER).write_text(json.dumps(facts))
        return environment


def platform_name() -> str:
    """This machine's name in extension modules, such as "x86_64-linux-gnu"."""
    return getattr(sys.implementation, "_multiarch", f"{platform.machine()}-linux-gnu")


def _version_of(archive: Archive) -> str:
    """The minor version that the environment was packed with.

    Raises:
        ArtifactError: `WRONG_PLATFORM`: it is no environment of a Python on Linux.
    """
    stated = VERSION_LINE.search(archive.pyvenv_cfg)
    version = minor_version(stated[1]) if stated else ""
    if not version and len(archive.python_versions) == 1:
        version = next(iter(archive.python_versions))
    if not version or version not in archive.python_versions:
        raise ArtifactError(
            Reason.WRONG_PLATFORM,
            "The packed environment has no lib/pythonX.Y of one version. Pack it with "
            "env_pack from a virtual environment on Linux.",
        )
    return version


def relocate(folder: Path, interpreter: Interpreter, pyvenv_cfg: str) -> None:
    """Make the environment run on `interpreter`: its programs become links, `home` points there."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for path in programs.iterdir():
        if PYTHON_PROGRAM.match(path.name):
            path.unlink()
    name = f"python{interpreter.version}"
    (programs / name).symlink_to(interpreter.python)
    (programs / "python3").symlink_to(name)
    (programs / "python").symlink_to(name)
    kept = SYSTEM_PACKAGES_LINE.sub("", HOME_LINE.sub("", pyvenv_cfg)).strip()
    (folder / "pyvenv.cfg").write_text(
        f"home = {interpreter.python.parent}\ninclude-system-site-packages = false\n{kept}\n"
    )


def verify(folder: Path, progress: Progress) -> None:
    """Import numpy and mlflow.pyfunc in the environment.

    Raises:
        ArtifactError: `ENVIRONMENT_DOES_NOT_IMPORT`.
    """
    status, output = run(
        [folder / "bin" / "python", "-I", "-c", VERIFY],
        environment=plain_environment(folder),
        limit_s=VERIFY_LIMIT_S,
        waiting=lambda s: progress(f"Checking that mlflow imports in the environment, {s:.0f} s"),
    )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if status == 0 and any(line.startswith("shoal-verified ") for line in lines):
        return
    if status is None:
        why = f"it took longer than {VERIFY_LIMIT_S} s"
    else:
        why = (lines[-1] if lines else f"Python ended with status {status}").replace(
            str(folder), "<environment>"
        )
    raise ArtifactError(
        Reason.ENVIRONMENT_DOES_NOT_IMPORT,
        f"The environment cannot import numpy and mlflow: {why[:400]}. Register the model again "
        "from an environment in which `import mlflow.pyfunc` works.",
    )


def compile_bytecode(environment: PythonEnvironment, progress: Progress) -> None:
    """Write the bytecode that the tar leaves out, at the lowest priority; what fails is left."""
    jobs = max(1, min(4, (os.cpu_count() or 2) // 2))
    library = environment.directory / "lib" / f"python{environment.python_version}"
    arguments: list[str | Path] = [environment.python, "-I", "-m", "compileall", "-q"]
    arguments += ["-j", str(jobs), library / "site-packages"]
    nice = shutil.which("nice")
    run(
        [nice, "-n", "19", *arguments] if nice else arguments,
        environment=plain_environment(environment.directory),
        limit_s=COMPILE_LIMIT_S,
        waiting=lambda s: progress(f"Compiling the environment's modules, {s:.0f} s"),
    )
