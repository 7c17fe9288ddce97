"""Each endpoint's own OpenAPI document: what its model's signature says of requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from portal.endpoints.models import Endpoint
from serving.protocol.plan import input_specs

Json = dict[str, Any]

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


def openapi(endpoint: Endpoint, base_url: str) -> Json:
    """How to query the endpoint, from its first served entity's signature and example."""
    config = endpoint.active_config or endpoint.pending_config
    entity = config.entities.first() if config else None
    version = entity.model_version if entity else None
    signature = (version.signature if version else None) or {}
    media: Json = {"schema": _request_schema(signature)}
    if version is not None and version.input_example:
        media["example"] = version.input_example
    content: Json = {"application/json": media}
    if not _are_tensors(input_specs(signature)):
        content["text/csv"] = {"schema": {"type": "string"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": endpoint.name,
            "version": str(config.version if config else 0),
            "description": endpoint.description,
        },
        "servers": [{"url": base_url}],
        "paths": {
            f"/serving-endpoints/{endpoint.name}/invocations": {
                "post": {
                    "operationId": "query",
                    "security": [{"bearer": []}],
                    "requestBody": {"required": True, "content": content},
                    "responses": {
                        "200": {
                            "description": "One prediction for each row.",
                            "headers": {
                                "served-model-name": {
                                    "description": "The served entity that answered.",
                                    "schema": {"type": "string"},
                                }
                            },
                            "content": {
                                "application/json": {"schema": _object({"predictions": {}})}
                            },
                        },
                        **{status: _error(words) for status, words in ERRORS.items()},
                    },
                }
            }
        },
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _error(words: str) -> Json:
    media = {"schema": {"$ref": "#/components/schemas/Error"}}
    return {"description": words, "content": {"application/json": media}}


def _request_schema(signature: Json) -> Json:
    """One of the input fields, each as the signature wants it, and the parameters."""
    specs = input_specs(signature)
    forms = _tensor_forms(specs) if _are_tensors(specs) else _column_forms(specs)
    params: Json = {
        str(spec["name"]): {} for spec in input_specs({"inputs": signature.get("params")})
    }
    return {
        "type": "object",
        "oneOf": [_object({field: schema}) for field, schema in forms.items()],
        "properties": {"params": {"type": "object", "properties": params}},
    }


def _are_tensors(specs: Sequence[Json]) -> bool:
    """Whether a signature is one of tensors, which MLflow does not read from CSV."""
    return bool(specs) and all(spec.get("type") == "tensor" for spec in specs)


def _object(properties: Json, required: Sequence[str] | None = None) -> Json:
    names = list(properties) if required is None else list(required)
    found: Json = {"type": "object", "properties": properties}
    return {**found, "required": names} if names else found


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


# ---------------------------------------------------------------- tensors


def _tensor_forms(specs: Sequence[Json]) -> dict[str, Json]:
    """`inputs` holds whole tensors, `instances` rows of them."""
    named = {str(spec["name"]): spec for spec in specs if spec.get("name")}
    if not named:
        return {"inputs": _tensor(specs[0]), "instances": _tensor(specs[0])}
    inputs = _object({name: _tensor(spec) for name, spec in named.items()})
    rows = _array(_object({name: _tensor(spec, of_row=True) for name, spec in named.items()}))
    if len(named) > 1:
        return {"inputs": inputs, "instances": rows}
    alone = _tensor(specs[0])  # a single tensor's name may be left out
    return {"inputs": {"anyOf": [inputs, alone]}, "instances": {"anyOf": [rows, alone]}}


def _tensor(field: Json, *, of_row: bool = False) -> Json:
    """Nested arrays of the tensor's shape; -1 is free."""
    spec = field.get("tensor-spec", {})
    kind = NUMPY_TYPES.get(_numpy_kind(str(spec.get("dtype", ""))))
    schema: Json = {"type": kind} if kind else {}
    sizes = spec.get("shape", [-1])
    for size in reversed(sizes[1:] if of_row else sizes):
        bounds = {} if size < 0 else {"minItems": size, "maxItems": size}
        schema = {"type": "array", "items": schema, **bounds}
    return schema


def _numpy_kind(dtype: str) -> str:
    return "b" if dtype == "bool" else dtype[:1] if dtype[:1] in "iuf" else ""


# ---------------------------------------------------------------- columns


def _column_forms(specs: Sequence[Json]) -> dict[str, Json]:
    """Rows as records or as a table; without column names, anything."""
    columns = {str(spec["name"]): _column(spec) for spec in specs if spec.get("name")}
    required = [str(spec["name"]) for spec in specs if spec.get("name") and _is_required(spec)]
    record = _object(columns, required)
    table = _object(
        {"columns": _array({"type": "string"} if columns else {}), "data": _array(_array({}))},
        required=["columns", "data"] if columns else ["data"],
    )
    if not columns:
        anything: Json = {"type": ["array", "object"]}
        return {
            "dataframe_records": _array({}),
            "dataframe_split": table,
            "inputs": anything,
            "instances": anything,
        }
    whole = _object({name: _array(column) for name, column in columns.items()}, required)
    return {
        "dataframe_records": _array(record),
        "dataframe_split": table,
        "inputs": {"anyOf": [_array(record), whole]},
        "instances": _array(record),
    }


def _is_required(spec: Json) -> bool:
    return spec.get("required", True) is not False


def _column(spec: Json) -> Json:
    """A column's value, by MLflow's type; null where the column is optional."""
    schema = _value(spec)
    if _is_required(spec) or not schema:
        return schema
    return {"anyOf": [schema, {"type": "null"}]}


def _value(spec: Json) -> Json:
    kind = spec.get("type")
    if kind == "array":
        return _array(_value(spec.get("items", {})))
    if kind == "object":
        properties: Json = spec.get("properties", {})
        required = [name for name, inner in properties.items() if _is_required(inner)]
        return _object({name: _column(inner) for name, inner in properties.items()}, required)
    if kind == "map":
        return {"type": "object", "additionalProperties": _value(spec.get("values", {}))}
    return {"type": COLUMN_TYPES[kind]} if kind in COLUMN_TYPES else {}


ERROR = _object(
    {
        "error_code": {"type": "string"},
        "message": {"type": "string"},
        "details": _array({"type": "object"}),
        "request_id": {"type": "string"},
    }
)
