"""Find this machine's Python interpreters, and the shared library that Triton's stub needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MINOR = re.compile(r"(\d+)\.(\d+)")
PROBE = """
import json, sys, sysconfig
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2], "prefix": sys.base_prefix,
    "libdir": sysconfig.get_config_var("LIBDIR") or "",
    "library": sysconfig.get_config_var("INSTSONAME") or "",
    "multiarch": sysconfig.get_config_var("MULTIARCH") or "",
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python of this machine.

    Attributes:
        python: The program.
        version: "3.11".
        prefix: Where its standard library lies.
        libpython: The shared library, None for a static build.
        platform: Such as "x86_64-linux-gnu"; "" where it does not say.
    """

    python: Path
    version: str
    prefix: Path
    libpython: Path | None
    platform: str


def minor_version(version: str) -> str:
    """The "3.11" of "3.11.7"; "" where there is no such number."""
    found = MINOR.match(version.strip())
    return found[0] if found else ""


def find_interpreter(version: str, homes: Sequence[str] = ()) -> Interpreter | None:
    """An interpreter of the minor version `version`, one with a shared library before others.

    Looked at in this order: the one that runs us, `homes` (prefixes of installations, or folders
    that hold such prefixes), then PATH, where the shims of pyenv lead to its versions.
    """
    static = None
    seen: set[Path] = set()
    for python in _candidates(version, homes):
        resolved = python.resolve()
        if resolved in seen or not python.exists():
            continue
        seen.add(resolved)
        found = probe(python)
        if found is None or found.version != version:
            continue
        if found.libpython is not None:
            return found
        static = static or found
    return static


def _candidates(version: str, homes: Sequence[str]) -> Iterator[Path]:
    name = f"python{version}"
    yield Path(sys.base_prefix, "bin", name)
    for home in homes:
        yield Path(home, "bin", name)
        yield from _newest_first(Path(home), version)
    for folder in os.get_exec_path():
        if folder:
            yield Path(folder, name)
            if Path(folder).name == "shims":
                yield from _newest_first(Path(folder).parent / "versions", version)


def _newest_first(folder: Path, version: str) -> list[Path]:
    found = folder.glob(f"*{version}*/bin/python{version}")
    return sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))][-3:])[
        ::-1
    ]


_known: dict[Path, Interpreter] = {}


def probe(python: Path) -> Interpreter | None:
    """Ask a Python what it is; None when it does not run. Answers are kept, refusals are not."""
    if python in _known:
        return _known[python]
    try:
        answer = subprocess.run(
            [python, "-I", "-S", "-c", PROBE],
            capture_output=True,
            check=True,
            timeout=30,
            stdin=subprocess.DEVNULL,
        )
        facts = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    prefix = Path(facts["prefix"])
    program = prefix / "bin" / f"python{facts['version']}"
    _known[python] = Interpreter(
        python=program if program.exists() else python,
        version=facts["version"],
        prefix=prefix,
        libpython=find_libpython(
            facts["version"], prefix, Path(facts["libdir"] or "/", facts["library"] or "none")
        ),
        platform=facts["multiarch"],
    )
    return _known[python]


def find_libpython(version: str, prefix: Path, built_as: Path | None = None) -> Path | None:
    """The shared library of a Python: beside it, where it was built to be, or the system's."""
    name = f"libpython{version}.so.1.0"
    for path in (prefix / "lib" / name, built_as):
        if path is not None and ".so" in path.name and path.is_file():
            return path
    return _of_the_system(name)


def _of_the_system(name: str) -> Path | None:
    program = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        return None
    listing = subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout
    for line in listing.splitlines():
        words = line.split()
        if words and words[0] == name and Path(words[-1]).is_file():
            return Path(words[-1])
    return None
