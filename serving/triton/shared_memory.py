"""The shared memory through which Triton hands batches to the model's process.

Each instance has one region, which grows by what is needed and never shrinks.
"""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

from serving.errors import LaunchError
from serving.protocol.plan import InputPlan
from serving.spec import Batching

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the kernel puts it, not a temporary file
LEAST_BYTES = 2**20  # Triton's own default and least
UNKNOWN_DIMENSION = 128  # a guess for -1, such as tokens of a text
ELEMENT_BYTES = {"BOOL": 1, "INT8": 1, "UINT8": 1, "INT16": 2, "UINT16": 2, "FP16": 2}
ELEMENT_BYTES |= {"INT32": 4, "UINT32": 4, "FP32": 4, "INT64": 8, "UINT64": 8, "FP64": 8}


def region_prefix(replica_id: str, directory: Path) -> str:
    """Give the name that all of a replica's regions start with; no other replica's do."""
    return f"shoal_{replica_id}_{hashlib.sha256(bytes(directory)).hexdigest()[:8]}_"


def region_bytes(plan: InputPlan, batching: Batching) -> int:
    """Give the size that a region starts with: room for a full batch and an answer as large.

    A row whose size the signature leaves open counts with a guess; the region grows where that is
    too little.
    """
    row_bytes = sum(
        ELEMENT_BYTES[i.datatype]
        * math.prod(UNKNOWN_DIMENSION if d < 0 else d for d in i.shape[1:] or i.dims)
        for i in plan.inputs
    )
    needed = int(1.2 * 2 * row_bytes * batching.max_batch_size)
    return max(LEAST_BYTES, math.ceil(needed / LEAST_BYTES) * LEAST_BYTES)


def fitting_region_bytes(wanted: int, instance_count: int) -> int:
    """Give `wanted`, or what this machine has room for.

    Raises:
        LaunchError: There is no room for the least that Triton needs.
    """
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError:
        return wanted
    share = found.f_bavail * found.f_frsize // (2 * instance_count)  # half stays free to grow into
    if share * 2 < LEAST_BYTES:
        raise LaunchError(
            f"The machine's shared memory is full: {share * 2 * instance_count} bytes are free,"
            f" Triton needs {LEAST_BYTES * instance_count}. Enlarge /dev/shm (with Docker:"
            " --shm-size) or stop other replicas."
        )
    return max(LEAST_BYTES, min(wanted, share))


def remove_regions(prefix: str) -> None:
    """Remove what a killed server left behind."""
    for region in SHARED_MEMORY.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)
