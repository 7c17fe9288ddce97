"""What the Open Inference Protocol tells of a server and its models, without asking a model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson

from serving.errors import ReplicaUnavailable
from serving.gateway.routing import LiveEntity
from serving.gateway.transport import Reply
from serving.protocol.oip.model import WHOLE_REQUEST, ModelTensor, model_inputs, model_outputs
from serving.protocol.oip.request import NotOffered
from serving.spec import Backend, RouteEntity

EXTENSIONS = ("binary_tensor_data", "model_configuration", "parameters", "statistics")
STATISTICS_TIMEOUT_S = 5.0
_STATISTICS = b"GET /v2/models/model/stats HTTP/1.1\r\nHost: replica\r\n\r\n"


def server_metadata() -> dict[str, Any]:
    """The server's name, version and which of the protocol's extensions it has."""
    try:
        own = version("shoal")
    except PackageNotFoundError:
        own = "0"  # run from its source
    return {"name": "shoal", "version": own, "extensions": list(EXTENSIONS)}


def metadata_of(model: str, entities: Sequence[RouteEntity]) -> dict[str, Any]:
    """A model's versions, and the inputs and outputs of the first."""
    first = entities[0]
    inputs = model_inputs(first.signature) or (WHOLE_REQUEST,)
    return {
        "name": model,
        "versions": list(dict.fromkeys(entity.entity_version for entity in entities)),
        "platform": "mlflow_pyfunc",
        "inputs": [tensor.to_json() for tensor in inputs],
        "outputs": [tensor.to_json() for tensor in model_outputs(first.signature)],
    }


def config_of(model: str, entity: RouteEntity) -> dict[str, Any]:
    """The part of Triton's model configuration that callers look at."""
    is_batched = entity.backend is Backend.TRITON
    inputs = model_inputs(entity.signature) or (WHOLE_REQUEST,)
    return {
        "name": model,
        "platform": "mlflow_pyfunc",
        "backend": "python" if is_batched else "",
        # 0: the shapes below hold the batch axis, and any number of rows is taken at once.
        "max_batch_size": 0,
        "input": [_config(tensor) for tensor in inputs],
        "output": [_config(tensor) for tensor in model_outputs(entity.signature)],
        "parameters": {
            "rows_at_once": {"string_value": str(entity.max_batch_size if is_batched else 1)}
        },
    }


def _config(tensor: ModelTensor) -> dict[str, Any]:
    datatype = "STRING" if tensor.datatype == "BYTES" else tensor.datatype
    return {"name": tensor.name, "data_type": f"TYPE_{datatype}", "dims": list(tensor.shape)}


async def statistics_of(entity: LiveEntity) -> dict[str, Any]:
    """Triton's statistics of a served entity, added up over its replicas.

    Raises:
        NotOffered: It does not run on Triton.
        ReplicaUnavailable: A replica does not answer.
    """
    spec = entity.spec
    if spec.backend is not Backend.TRITON:
        raise NotOffered(f"Served entity '{spec.name}' does not run on Triton: no statistics.")
    try:
        async with asyncio.timeout(STATISTICS_TIMEOUT_S):
            replies = await asyncio.gather(
                *(replica.pool.request([_STATISTICS]) for replica in list(entity.replicas))
            )
    except TimeoutError as exc:
        raise ReplicaUnavailable("A replica does not tell its statistics now.") from exc
    found: dict[str, Any] = {}
    for reply in replies:
        found = _added(found, _first_model(reply))
    return {**found, "name": spec.entity_name, "version": spec.entity_version}


def _first_model(reply: Reply) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = orjson.loads(reply.body)["model_stats"][0]
    except (ValueError, KeyError, IndexError, TypeError) as exc:
        raise ReplicaUnavailable("A replica does not tell its statistics now.") from exc
    return found


def _added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two replicas' counts as one; the time of the last inference is the later one's."""
    both = dict(one)
    for name, value in other.items():
        before = both.get(name)
        if name == "last_inference":
            both[name] = max(before or 0, value)
        elif name == "batch_size":
            both[name] = value
        elif name == "batch_stats":
            both[name] = _added_batches(before or [], value)
        elif isinstance(value, Mapping):
            both[name] = _added(before or {}, value)
        elif isinstance(value, int) and not isinstance(value, bool):
            both[name] = (before or 0) + value
        else:
            both[name] = value
    return both


def _added_batches(
    one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    by_size: dict[int, dict[str, Any]] = {}
    for batch in (*one, *other):
        size = batch["batch_size"]
        by_size[size] = _added(by_size.get(size, {}), batch)
    return [by_size[size] for size in sorted(by_size)]
