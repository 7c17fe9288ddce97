"""What the API answers as text: metrics, and each endpoint's own OpenAPI."""

from __future__ import annotations

import json
from typing import Any

from portal.endpoints.models import Endpoint
from portal.endpoints.reading import live_replicas, triton_view
from portal.endpoints.states import Ready, ReplicaState, TritonStatus

NUMPY_TYPES = {"i": "integer", "u": "integer", "f": "number", "b": "boolean"}
COLUMN_TYPES = {
    "boolean": "boolean",
    "integer": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "string": "string",
    "binary": "string",
    "datetime": "string",
    "object": "object",
}


def metrics(endpoint: Endpoint) -> str:
    """The endpoint's state in Prometheus' text format."""
    lines = [
        "# HELP shoal_endpoint_ready Whether every served entity can answer.",
        "# TYPE shoal_endpoint_ready gauge",
        f"shoal_endpoint_ready{_labels(endpoint=endpoint.name)} "
        f"{int(endpoint.ready == Ready.READY)}",
        "# HELP shoal_replicas Replicas of each served entity by state.",
        "# TYPE shoal_replicas gauge",
    ]
    entities = list(endpoint.active_config.entities.all()) if endpoint.active_config else []
    for entity in entities:
        replicas = live_replicas(entity)
        for state in ReplicaState:
            count = sum(replica.state == state for replica in replicas)
            labels = _labels(endpoint=endpoint.name, served_entity=entity.name, state=state.value)
            lines.append(f"shoal_replicas{labels} {count}")
    lines += [
        "# HELP shoal_replica_restarts_total Restarts of each live replica's server.",
        "# TYPE shoal_replica_restarts_total counter",
    ]
    for entity in entities:
        for replica in live_replicas(entity):
            labels = _labels(
                endpoint=endpoint.name, served_entity=entity.name, replica=replica.public_id
            )
            lines.append(f"shoal_replica_restarts_total{labels} {replica.restarts}")
    lines += [
        "# HELP shoal_triton_active Whether every live replica proves that Triton serves it.",
        "# TYPE shoal_triton_active gauge",
    ]
    for entity in entities:
        active = int(triton_view(entity).status == TritonStatus.ACTIVE)
        labels = _labels(endpoint=endpoint.name, served_entity=entity.name)
        lines.append(f"shoal_triton_active{labels} {active}")
    return "\n".join(lines) + "\n"


def _labels(**labels: str) -> str:
    inner = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
    return f"{{{inner}}}"


def openapi(endpoint: Endpoint) -> dict[str, Any]:
    """How to query the endpoint, from its first served entity's signature and example."""
    config = endpoint.active_config or endpoint.pending_config
    entity = config.entities.first() if config else None
    version = entity.model_version if entity else None
    signature = (version.signature if version else None) or {}
    media: dict[str, Any] = {"schema": _request_schema(_fields(signature, "inputs"))}
    if version is not None and version.input_example:
        media["example"] = version.input_example
    return {
        "openapi": "3.1.0",
        "info": {
            "title": endpoint.name,
            "version": str(config.version if config else 0),
            "description": endpoint.description,
        },
        "paths": {
            f"/serving-endpoints/{endpoint.name}/invocations": {
                "post": {
                    "operationId": "query",
                    "security": [{"bearer": []}],
                    "requestBody": {"required": True, "content": {"application/json": media}},
                    "responses": {
                        "200": {
                            "description": "One prediction for each row.",
                            "content": {"application/json": {"schema": _answer_schema()}},
                        },
                        **{
                            status: {
                                "description": words,
                                "content": {"application/json": {"schema": _error_schema()}},
                            }
                            for status, words in ERRORS.items()
                        },
                    },
                }
            }
        },
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


ERRORS = {
    "400": "The input does not fit the model, or the model raised on it.",
    "401": "No token, or one that is not valid.",
    "403": "The caller may not query the endpoint.",
    "404": "There is no such endpoint for the caller.",
    "429": "Too many requests; Retry-After says when to come again.",
    "503": "Not ready now; Retry-After says when to come again.",
    "504": "The request ran longer than the endpoint allows.",
}


def _fields(signature: dict[str, Any], side: str) -> list[dict[str, Any]]:
    kept = signature.get(side)
    found: list[dict[str, Any]] = json.loads(kept) if isinstance(kept, str) else kept or []
    return found


def _request_schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    if fields and fields[0].get("type") == "tensor":
        return {
            "oneOf": [
                _object({"inputs": _tensors(fields)}),
                _object({"instances": {"type": "array"}}),
            ]
        }
    record = {
        "type": "object",
        "properties": {f["name"]: _column(f) for f in fields if "name" in f},
    }
    return {
        "oneOf": [
            _object({"dataframe_records": {"type": "array", "items": record}}),
            _object(
                {
                    "dataframe_split": _object(
                        {
                            "columns": {"type": "array", "items": {"type": "string"}},
                            "data": {"type": "array", "items": {"type": "array"}},
                        }
                    )
                }
            ),
            _object({"inputs": {"type": ["array", "object"]}}),
            _object({"instances": {"type": "array"}}),
        ]
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _tensors(fields: list[dict[str, Any]]) -> dict[str, Any]:
    if len(fields) == 1 and not fields[0].get("name"):
        return _tensor(fields[0])
    return _object({field["name"]: _tensor(field) for field in fields})


def _tensor(field: dict[str, Any]) -> dict[str, Any]:
    """Nested arrays of the tensor's shape; -1 is free."""
    spec = field.get("tensor-spec", {})
    kind = NUMPY_TYPES.get(_numpy_kind(str(spec.get("dtype", ""))))
    schema: dict[str, Any] = {"type": kind} if kind else {}
    for size in reversed(spec.get("shape", [-1])):
        bounds = {} if size < 0 else {"minItems": size, "maxItems": size}
        schema = {"type": "array", "items": schema, **bounds}
    return schema


def _numpy_kind(dtype: str) -> str:
    return dtype[0] if dtype and dtype[0] in NUMPY_TYPES else ""


def _column(field: dict[str, Any]) -> dict[str, Any]:
    return {"type": COLUMN_TYPES[field["type"]]} if field.get("type") in COLUMN_TYPES else {}


def _answer_schema() -> dict[str, Any]:
    return _object({"predictions": {"type": "array"}})


def _error_schema() -> dict[str, Any]:
    return _object({"error_code": {"type": "string"}, "message": {"type": "string"}})
