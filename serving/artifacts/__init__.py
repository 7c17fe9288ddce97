"""The express store: packed models and environments, checked, unpacked, relocated and shared.

An environment is kept once, under the hash of its content, however many model versions bring it.
Everything is made in a temporary sibling folder and appears by one rename, so what is found under
its final name is always whole. Work on one name is held by a file lock: two who want the same
environment do the work once, and a killed worker leaves only a temporary folder behind.

What is refused is an `ArtifactError` with one of `Reason`'s words.
"""

from __future__ import annotations

from serving.artifacts.archives import Archive, inspect_archive
from serving.artifacts.building import build_environment, build_key, complete_requirements
from serving.artifacts.environments import EnvironmentStore, compile_bytecode
from serving.artifacts.files import Progress, Reason, collect, remove_tree
from serving.artifacts.interpreters import Interpreter, find_interpreter, minor_version
from serving.artifacts.models import link_model, unpack_model

__all__ = [
    "Archive",
    "EnvironmentStore",
    "Interpreter",
    "Progress",
    "Reason",
    "build_environment",
    "build_key",
    "collect",
    "compile_bytecode",
    "complete_requirements",
    "find_interpreter",
    "inspect_archive",
    "link_model",
    "minor_version",
    "remove_tree",
    "unpack_model",
]
