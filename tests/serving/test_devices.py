"""Which devices GPU workload types get, with a driver's tool of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import devices
from serving.errors import LaunchError
from serving.spec import Device, DeviceKind

EMULATED = (Device(kind=DeviceKind.CPU_EMULATION),)


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine without a driver, whatever this one has."""
    monkeypatch.setattr(devices, "CONTROL_DEVICE", tmp_path / "nvidiactl")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices._gpu_indices.cache_clear()
    yield
    devices._gpu_indices.cache_clear()


def add_gpus(tmp_path: Path, count: int) -> None:
    """Let nvidia-smi name so many."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n" + "".join(f"echo {i}\n" for i in range(count)))
    tool.chmod(0o755)


def test_without_a_gpu_auto_means_emulation() -> None:
    assert devices.find_devices("auto") == EMULATED
    assert devices.accelerator("auto") is DeviceKind.CPU_EMULATION


def test_without_a_gpu_cuda_is_an_error_that_names_the_setting() -> None:
    with pytest.raises(LaunchError, match="SHOAL_ACCELERATOR is cuda"):
        devices.find_devices("cuda")


def test_each_gpu_is_a_device(tmp_path: Path) -> None:
    add_gpus(tmp_path, 2)

    assert devices.find_devices("auto") == (
        Device(kind=DeviceKind.CUDA, indices=(0,)),
        Device(kind=DeviceKind.CUDA, indices=(1,)),
    )
    assert devices.accelerator("cuda") is DeviceKind.CUDA


def test_emulation_can_be_asked_for_beside_a_gpu(tmp_path: Path) -> None:
    add_gpus(tmp_path, 1)

    assert devices.find_devices("cpu-emulation") == EMULATED


def test_only_visible_gpus_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_gpus(tmp_path, 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")

    found = devices.find_devices("cuda")

    assert [device.indices for device in found] == [(1,), (3,)]


def test_no_gpu_may_be_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_gpus(tmp_path, 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    assert devices.find_devices("auto") == EMULATED
