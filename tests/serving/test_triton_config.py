"""config.pbtxt is what Triton's own protobuf reads."""

from __future__ import annotations

import json
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from serving.protocol.plan import plan_inputs
from serving.spec import Batching, Device, DeviceKind
from serving.triton.config import config_pbtxt

CPU = Device(kind=DeviceKind.CPU_EMULATION)


def load_messages() -> Any:
    """Triton's protobuf messages; the package around them asks for grpcio, which they don't."""
    client = find_spec("tritonclient")
    assert client is not None
    assert client.origin is not None
    file = Path(client.origin).parent / "grpc" / "model_config_pb2.py"
    spec = spec_from_file_location("model_config_pb2", file)
    assert spec is not None
    assert spec.loader is not None
    messages = module_from_spec(spec)
    spec.loader.exec_module(messages)
    return messages


MESSAGES = load_messages()


def read(
    signature: dict[str, Any] | None = None,
    *,
    batching: Batching | None = None,
    device: Device = CPU,
    model_directory: Path = Path("models/m"),
) -> Any:
    """Write a config and read it as Triton does."""
    text = config_pbtxt(
        plan=plan_inputs(signature),
        batching=batching or Batching(),
        device=device,
        model_directory=model_directory,
    )
    return text_format.Parse(text, MESSAGES.ModelConfig())


def signature_of(*inputs: dict[str, Any]) -> dict[str, Any]:
    """A signature as MLflow writes it."""
    return {"inputs": json.dumps(inputs), "outputs": None, "params": None}


def tensor(name: str, dtype: str, *shape: int) -> dict[str, Any]:
    """A named tensor of a signature."""
    return {"type": "tensor", "name": name, "tensor-spec": {"dtype": dtype, "shape": shape}}


def test_inputs_and_the_output_are_those_of_the_plan() -> None:
    config = read(
        signature_of(tensor("ids", "int64", -1, -1), tensor("image", "float32", -1, 3, 8, 8))
    )

    assert [(i.name, i.data_type, list(i.dims)) for i in config.input] == [
        ("ids", 9, [-1]),  # TYPE_INT64
        ("image", 11, [-1, -1, -1]),  # TYPE_FP32
    ]
    assert all(i.allow_ragged_batch for i in config.input)
    assert [(o.name, o.data_type, list(o.dims)) for o in config.output] == [("out", 2, [-1])]
    assert (config.name, config.backend) == ("model", "python")


def test_batching_reaches_triton_in_its_own_words() -> None:
    batching = Batching(
        max_batch_size=16,
        max_queue_delay_microseconds=500,
        preferred_batch_size=(8, 16, 64),
        instance_count=2,
    )

    config = read(batching=batching)

    dynamic = config.dynamic_batching
    assert config.max_batch_size == 16
    assert dynamic.max_queue_delay_microseconds == 500
    assert list(dynamic.preferred_batch_size) == [8, 16]  # Triton refuses one above the most
    assert not dynamic.HasField("default_queue_policy")  # it would make the batcher miss wake-ups
    assert config.instance_group[0].count == 2


def test_an_emulated_gpu_is_a_cpu_to_triton() -> None:
    group = read(device=CPU).instance_group[0]

    assert group.kind == MESSAGES.ModelInstanceGroup.KIND_CPU
    assert list(group.gpus) == []


def test_the_devices_of_a_replica_are_numbered_from_0() -> None:
    device = Device(kind=DeviceKind.CUDA, indices=(3,))

    group = read(device=device).instance_group[0]

    assert group.kind == MESSAGES.ModelInstanceGroup.KIND_GPU
    assert list(group.gpus) == [0]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_any_text_reaches_the_shim_unharmed(text: str) -> None:
    directory = Path("models", text)
    column = {"type": "double", "name": text, "required": True}

    config = read(signature_of(column), model_directory=directory)

    spec = json.loads(config.parameters["spec"].string_value)
    assert spec["model_directory"] == str(directory)
    assert spec["plan"]["inputs"][0]["key"] == text
