"""Write Triton's `config.pbtxt` for a model in the Python backend."""

from __future__ import annotations

import json
from pathlib import Path

from serving.protocol.plan import OUTPUT_NAME, InputPlan
from serving.spec import Batching, Device, DeviceKind

MODEL = "model"
"""Every replica's server has one model of this name, in version 1."""


def config_pbtxt(
    *, plan: InputPlan, batching: Batching, device: Device, model_directory: Path
) -> str:
    """Give the text of `config.pbtxt`.

    There is no queue policy, on purpose: a bound or a timeout in it makes this Triton's batcher
    miss wake-ups, and a request then waits half a second (measured, one in fifty at one caller).
    The gateway owns the bound and the deadline. What the shim needs to know travels in the
    parameter "spec".
    """
    spec = {"model_directory": str(model_directory), "plan": plan.to_json()}
    inputs = "\n".join(
        f"input {{ name: {_quoted(i.name)} data_type: TYPE_{i.datatype} dims: {_list(i.dims)}"
        f" allow_ragged_batch: {'true' if i.allow_ragged_batch else 'false'} }}"
        for i in plan.inputs
    )
    preferred = [size for size in batching.preferred_batch_size if size <= batching.max_batch_size]
    return f"""\
name: "{MODEL}"
backend: "python"
max_batch_size: {batching.max_batch_size}
{inputs}
output {{ name: "{OUTPUT_NAME}" data_type: TYPE_UINT8 dims: [ -1 ] }}
dynamic_batching {{
  max_queue_delay_microseconds: {batching.max_queue_delay_microseconds}
  preferred_batch_size: {_list(preferred)}
}}
instance_group [ {{ count: {batching.instance_count} {_kind(device)} }} ]
parameters {{ key: "spec" value: {{ string_value: {_quoted(json.dumps(spec))} }} }}
"""


def _kind(device: Device) -> str:
    """Give the instances their place.

    A replica's devices are the only ones its server sees (`CUDA_VISIBLE_DEVICES`), so they are
    numbered from 0. Instances are put on the first; a model that spreads over several finds the
    others. One group for each GPU would load the model once for each instead.
    """
    return "kind: KIND_GPU gpus: [ 0 ]" if device.kind is DeviceKind.CUDA else "kind: KIND_CPU"


def _list(numbers: tuple[int, ...] | list[int]) -> str:
    return f"[ {', '.join(map(str, numbers))} ]" if numbers else "[ ]"


def _quoted(text: str) -> str:
    """A string of protobuf's text format."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
