"""The model store: the unpacked files of one model version, ready to be loaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from serving.artifacts.archives import inspect_archive
from serving.artifacts.files import Progress, Reason, folder_that_appears, locked
from serving.artifacts.unpacking import unpack
from serving.errors import ArtifactError

MLMODEL = "MLmodel"
PACKED = "_databricks"


def unpack_model(tar: Path, target: Path, progress: Progress) -> None:
    """Unpack MLflow's `model_version.tar` to `target`, unless it is there already.

    Raises:
        ArtifactError: `UNSAFE_TAR`, `INCOMPLETE` or `NO_SPACE`.
    """
    archive = inspect_archive(tar, progress, "model")
    if MLMODEL not in archive.names:
        raise ArtifactError(Reason.INCOMPLETE, "The packed model has no MLmodel file.")

    def make(folder: Path) -> None:
        unpack(tar, archive, folder, progress, "model")

    _make(target, make, progress)


def link_model(source: Path, target: Path, progress: Progress) -> None:
    """Bring the files of an uploaded model folder to `target`, unless they are there already.

    Files are linked, which costs no space and outlives the upload's removal; where the file
    system cannot link, they are copied. The tars are left out.
    """

    def make(folder: Path) -> None:
        for directory, folders, files in os.walk(source):
            if Path(directory) == source and PACKED in folders:
                folders.remove(PACKED)
            here = folder / Path(directory).relative_to(source)
            here.mkdir(exist_ok=True)
            for name in files:
                _link_or_copy(Path(directory, name), here / name)
                progress("Bringing the model's files to where they are loaded from")

    _make(target, make, progress)


def _make(target: Path, make: Callable[[Path], None], progress: Progress) -> None:
    root, name = target.parent, target.name
    with locked(root, name, waiting=lambda: progress("Waiting for the model to be unpacked")):
        if not (target / MLMODEL).is_file():
            with folder_that_appears(root, name) as folder:
                make(folder)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)
