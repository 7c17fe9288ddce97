"""Tars for tests: as `env_pack` writes them, and hostile ones."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

from tests.support.model_environment import make_environment


def pack(folder: Path, tar: Path) -> Path:
    """Tar a folder as `env_pack` does: links followed, no bytecode, names start with `./`."""

    def without_bytecode(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if "__pycache__" in member.name or member.name.endswith(".pyc") else member

    tar.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(tar, "w", dereference=True) as out:
        out.add(folder, arcname=".", filter=without_bytecode)
    return tar


def packed_environment(folder: Path, *, startup: str = "", extra: str = "") -> Path:
    """A packed environment that imports what the tests run with.

    Args:
        folder: For the environment and its tar.
        startup: Python that runs whenever the environment's interpreter starts.
        extra: Makes the content, and so its hash, another.
    """
    environment = make_environment(folder / "venv")
    packages = next((environment.directory / "lib").glob("python*/site-packages"))
    if startup:
        (packages / "startup_for_test.py").write_text(startup)
        (packages / "a_startup.pth").write_text("import startup_for_test\n")
    (packages / "extra.txt").write_text(extra)
    return pack(environment.directory, folder / "model_environment.tar")


def packed_model(folder: Path) -> Path:
    """A packed model: an MLmodel and a file of weights."""
    model = folder / "model"
    (model / "artifacts").mkdir(parents=True)
    (model / "MLmodel").write_text("flavors: {python_function: {python_version: 3.11.7}}\n")
    (model / "artifacts" / "weights.bin").write_bytes(b"w" * 100_000)
    return pack(model, folder / "model_version.tar")


def tar_of(tar: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """A tar of exactly these members."""
    with tarfile.open(tar, "w", format=tarfile.GNU_FORMAT) as out:
        for member, content in members:
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    return tar


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """A member's header."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def wheel(folder: Path, name: str, files: dict[str, str]) -> None:
    """A wheel of pure Python, without dependencies."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as out:
        for path, content in files.items():
            out.writestr(path, content)
        out.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        out.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        out.writestr(f"{info}/RECORD", "")
