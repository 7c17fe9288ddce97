"""Workload types and compute scale-out: what they offer and how many replicas they ask for.

Names are those of the mirrored product (see its REST reference); sizes too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadType:
    """A compute class that a served entity runs on.

    Attributes:
        gpus: GPUs for each replica.
        memory_gib: Main memory on CPU types, GPU memory on GPU types, for each replica.
        units_per_replica: Provisioned concurrency that one replica gives.
    """

    name: str
    label: str
    gpus: int
    memory_gib: int
    units_per_replica: int = 4

    @property
    def is_gpu(self) -> bool:
        """Whether the type asks for GPUs."""
        return self.gpus > 0


WORKLOAD_TYPES: dict[str, WorkloadType] = {
    t.name: t
    for t in (
        WorkloadType(name="CPU", label="CPU", gpus=0, memory_gib=4),
        WorkloadType(name="CPU_MEDIUM", label="CPU medium", gpus=0, memory_gib=8),
        WorkloadType(name="CPU_LARGE", label="CPU large", gpus=0, memory_gib=16),
        WorkloadType(name="GPU_SMALL", label="GPU small (1 GPU, 16 GB)", gpus=1, memory_gib=16),
        WorkloadType(name="GPU_MEDIUM", label="GPU medium (1 GPU, 24 GB)", gpus=1, memory_gib=24),
        WorkloadType(name="MULTIGPU_MEDIUM", label="GPU medium x 4 (96 GB)", gpus=4, memory_gib=96),
        WorkloadType(name="GPU_LARGE", label="GPU large (1 GPU, 80 GB)", gpus=1, memory_gib=80),
        WorkloadType(name="GPU_XLARGE", label="GPU xlarge (1 GPU, 80 GB)", gpus=1, memory_gib=80),
        WorkloadType(name="GPU_XLARGE_8", label="GPU xlarge x 8 (640 GB)", gpus=8, memory_gib=640),
    )
}

WORKLOAD_SIZES: dict[str, tuple[int, int]] = {"Small": (4, 4), "Medium": (8, 16), "Large": (16, 64)}
"""Compute scale-out to (least, most) provisioned concurrency; "Custom" takes its own numbers."""


def replicas_for(workload_type: str, concurrency: int) -> int:
    """Replicas that give `concurrency` units on `workload_type`, at least one."""
    units = WORKLOAD_TYPES[workload_type].units_per_replica
    return max(1, -(-concurrency // units))
