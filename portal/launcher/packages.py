"""Give another virtual environment of the same Python some packages of this one, by links.

It takes a second instead of a download, and no disk space.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


def link_packages(names: Iterable[str], environment: Path) -> None:
    """Put `names` and all that they need into `environment`, a venv of this very Python.

    Files are hard links, or copies where the file system is another one. Console scripts stay out:
    they name this environment's interpreter.

    Raises:
        PackageNotFoundError: One of `names` is not installed here.
    """
    here = Path(sysconfig.get_path("purelib"))
    layout = {"base": str(environment), "platbase": str(environment)}
    there = Path(sysconfig.get_path("purelib", vars=layout))
    for distribution in _closure(names):
        for entry in distribution.files or ():
            if ".." in entry.parts:
                continue
            source, target = here / entry, there / entry
            if not source.is_file() or target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)


def _closure(names: Iterable[str]) -> list[metadata.Distribution]:
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for text in found[name].requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed.name)
    return list(found.values())
