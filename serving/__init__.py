"""The engine's front door: what the portal and a plain Python prompt need of it.

    runtime = ProcessRuntime(Path("replicas"), "redis://localhost")
    runtime.launch(ReplicaSpec(...))
    read_logs(Path("replicas/g7zw9"))

The names are looked up when they are asked for, so that a replica's supervisor, which also comes
in by this door, loads no more than it uses. Values handed in and out are in `serving.spec`, errors
in `serving.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.devices import accelerator, find_devices
    from serving.runtime import Runtime, last_line_number, read_logs
    from serving.runtime.processes import ProcessRuntime
    from serving.triton.evidence import is_triton_active

__all__ = [
    "ProcessRuntime",
    "Runtime",
    "accelerator",
    "find_devices",
    "is_triton_active",
    "last_line_number",
    "read_logs",
]

_HOMES = {
    "ProcessRuntime": "serving.runtime.processes",
    "Runtime": "serving.runtime",
    "accelerator": "serving.devices",
    "find_devices": "serving.devices",
    "is_triton_active": "serving.triton.evidence",
    "last_line_number": "serving.runtime",
    "read_logs": "serving.runtime",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
