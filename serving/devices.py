"""The accelerators of this machine, found without loading CUDA into the asking process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from serving.errors import LaunchError
from serving.spec import Device, DeviceKind

CONTROL_DEVICE = Path("/dev/nvidiactl")
TIMEOUT_S = 60

COUNT_BY_TORCH = "import torch; print(*range(torch.cuda.device_count()), sep='\\n')"


def find_devices(setting: str) -> tuple[Device, ...]:
    """Give the devices that GPU workload types run on here, one for each GPU.

    Args:
        setting: "auto": the GPUs, or one emulated on the CPU; "cuda": the GPUs; "cpu-emulation".

    Raises:
        LaunchError: The setting is "cuda" and there is no GPU.
    """
    if setting == "cpu-emulation":
        return (Device(kind=DeviceKind.CPU_EMULATION),)
    indices = _gpu_indices()
    if indices:
        return tuple(Device(kind=DeviceKind.CUDA, indices=(index,)) for index in indices)
    if setting == "cuda":
        raise LaunchError(
            "SHOAL_ACCELERATOR is cuda, but this machine shows no CUDA device. Mend the driver, or"
            " set it to auto to run GPU workload types in CPU emulation."
        )
    return (Device(kind=DeviceKind.CPU_EMULATION),)


def accelerator(setting: str) -> DeviceKind:
    """Give what GPU workload types compute on here; takes and raises what `find_devices` does."""
    return find_devices(setting)[0].kind


def device_key(device: Device, *, cores: int) -> str:
    """Give what measurements on the device hold for: its kind, and the GPU's name or the cores."""
    if device.kind is DeviceKind.CUDA:
        names = _gpu_names()
        index = device.indices[0] if device.indices else 0
        return f"{device.kind}:{names[index] if index < len(names) else 'GPU'}"
    return f"{device.kind}:{cores} core{'' if cores == 1 else 's'}"


@cache
def _gpu_names() -> tuple[str, ...]:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines())


@cache
def _gpu_indices() -> tuple[int, ...]:
    """Ask once: GPUs do not come and go while a machine runs."""
    if not CONTROL_DEVICE.exists() and shutil.which("nvidia-smi") is None:
        return ()  # spares a machine without a driver the seconds that loading torch takes
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    found = _numbers(query)
    if found is None:
        found = _numbers([sys.executable, "-c", COUNT_BY_TORCH]) or ()
    return _visible(found)


def _numbers(command: list[str]) -> tuple[int, ...] | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        return tuple(int(line) for line in done.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _visible(found: tuple[int, ...]) -> tuple[int, ...]:
    """Only those that CUDA_VISIBLE_DEVICES names, where it names them by number."""
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if "CUDA_VISIBLE_DEVICES" not in os.environ or not all(
        name.isdigit() for name in named if name
    ):
        return found
    wanted = {int(name) for name in named if name}
    return tuple(index for index in found if index in wanted)
