"""An endpoint's own OpenAPI: valid, and its schema takes what the gateway takes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from django.test import Client
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec
from mlflow.types.schema import Array, DataType, Map, Object, Property
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from portal.endpoints.models import Endpoint
from serving.errors import ServingError
from serving.protocol.codec import EntityCodec
from tests.support.factories import Cast, live_endpoint, make_cast

pytestmark = pytest.mark.django_db

IMAGES = [TensorSpec(np.dtype("float32"), (-1, 2, 2))]
PAIR = [
    TensorSpec(np.dtype("int64"), (-1,), "ids"),
    TensorSpec(np.dtype("float64"), (-1, 2), "points"),
]
ONE_NAMED = [TensorSpec(np.dtype("uint8"), (-1, 2), "pixels")]
TABLE = [
    ColSpec(DataType.double, "length"),
    ColSpec(DataType.string, "flag"),
    ColSpec(DataType.long, "crew", required=False),
]
PLAIN_TABLE = TABLE[:2]
NESTED = [
    ColSpec(Array(DataType.double), "track"),
    ColSpec(Object([Property("id", DataType.long)]), "port"),
    ColSpec(Map(DataType.string), "labels"),
]
ROW = {"length": 12.5, "flag": "NO", "crew": 4}

ACCEPTED: list[tuple[list[Any] | None, list[dict[str, Any]]]] = [
    (
        IMAGES,
        [
            {"inputs": [[[1, 2], [3, 4]]]},
            {"instances": [[[1, 2], [3, 4]], [[0.5, 0], [0, 0]]]},
        ],
    ),
    (
        PAIR,
        [
            {"inputs": {"ids": [1, 2], "points": [[0, 1], [2, 3]]}},
            {"instances": [{"ids": 1, "points": [0, 1]}]},
        ],
    ),
    (
        ONE_NAMED,
        [
            {"inputs": {"pixels": [[1, 2]]}},
            {"inputs": [[1, 2]]},
            {"instances": [{"pixels": [1, 2]}]},
            {"instances": [[1, 2]]},
        ],
    ),
    (
        TABLE,
        [
            {"dataframe_records": [ROW]},
            {"dataframe_records": [{"length": 1, "flag": ""}]},
            {"dataframe_split": {"columns": list(ROW), "data": [list(ROW.values())]}},
            {"inputs": {"length": [1.5], "flag": ["NO"], "crew": [1]}},
            {"inputs": [ROW]},
            {"instances": [ROW]},
        ],
    ),
    (
        NESTED,
        [{"dataframe_records": [{"track": [1.5], "port": {"id": 1}, "labels": {"a": "b"}}]}],
    ),
    (None, [{"inputs": [[1, 2]]}, {"dataframe_split": {"data": [[1, 2]]}}]),
]
REFUSED: list[tuple[list[Any] | None, list[dict[str, Any]]]] = [
    (
        IMAGES,
        [
            {},
            {"inputs": [[[1, 2], [3, 4]]], "instances": [[[1, 2], [3, 4]]]},
            {"inputs": [[[1, 2, 3], [4, 5, 6]]]},
            {"inputs": "text"},
        ],
    ),
    (PAIR, [{"inputs": {"ids": [1]}}, {"instances": [{"ids": 1}]}]),
    (
        PLAIN_TABLE,
        [
            {"dataframe_records": [{"length": 12.5}]},
            {"dataframe_records": [{"length": "much", "flag": "NO"}]},
            {"dataframe_records": {"length": 12.5, "flag": "NO"}},
            {"dataframe_split": {"columns": ["length", "flag"]}},
            {"instances": [{"flag": "NO"}]},
        ],
    ),
    (None, [{"outputs": [1]}]),
]


def signature(specs: list[Any] | None) -> dict[str, Any] | None:
    params = ParamSchema([ParamSpec("threshold", "double", 0.5)])
    return dict(ModelSignature(Schema(specs), params=params).to_dict()) if specs else None


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def endpoint(cast: Cast) -> Endpoint:
    return live_endpoint(endpoint_name="live", creator=cast.manager.user)


def document_of(client: Client, cast: Cast, endpoint: Endpoint, **fields: Any) -> dict[str, Any]:
    assert endpoint.active_config is not None
    version = endpoint.active_config.entities.get().model_version
    assert version is not None
    for name, value in fields.items():
        setattr(version, name, value)
    version.save()
    path = "/api/2.0/serving-endpoints/live/openapi"
    found: dict[str, Any] = client.get(path, headers=cast.manager.headers).json()
    return found


def schema_of(document: dict[str, Any]) -> dict[str, Any]:
    post = document["paths"]["/serving-endpoints/live/invocations"]["post"]
    found: dict[str, Any] = post["requestBody"]["content"]["application/json"]["schema"]
    return found


def is_taken(specs: list[Any] | None, body: dict[str, Any]) -> bool:
    try:
        EntityCodec(signature(specs), 100).decode(json.dumps(body).encode())
    except ServingError:
        return False
    return True


@pytest.mark.parametrize("specs", [IMAGES, PAIR, ONE_NAMED, TABLE, NESTED, None])
def test_the_document_is_valid(
    client: Client, cast: Cast, endpoint: Endpoint, specs: list[Any] | None
) -> None:
    found = document_of(client, cast, endpoint, signature=signature(specs))

    validate(found)
    assert found["servers"] == [{"url": "http://testserver"}]


@pytest.mark.parametrize(("specs", "bodies"), ACCEPTED)
def test_what_the_gateway_takes_fits_the_schema(
    client: Client,
    cast: Cast,
    endpoint: Endpoint,
    specs: list[Any] | None,
    bodies: list[dict[str, Any]],
) -> None:
    schema = schema_of(document_of(client, cast, endpoint, signature=signature(specs)))

    for body in bodies:
        assert is_taken(specs, body), body
        OAS31Validator(schema).validate(body)
        OAS31Validator(schema).validate({**body, "params": {"threshold": 0.1}})


@pytest.mark.parametrize(("specs", "bodies"), REFUSED)
def test_what_the_gateway_refuses_does_not_fit_the_schema(
    client: Client,
    cast: Cast,
    endpoint: Endpoint,
    specs: list[Any] | None,
    bodies: list[dict[str, Any]],
) -> None:
    schema = schema_of(document_of(client, cast, endpoint, signature=signature(specs)))

    for body in bodies:
        assert not is_taken(specs, body), body
        assert not OAS31Validator(schema).is_valid(body), body


def test_the_models_example_stands_in_it_and_fits(
    client: Client, cast: Cast, endpoint: Endpoint
) -> None:
    example = {"dataframe_records": [ROW]}

    found = document_of(client, cast, endpoint, signature=signature(TABLE), input_example=example)

    post = found["paths"]["/serving-endpoints/live/invocations"]["post"]
    media = post["requestBody"]["content"]["application/json"]
    assert media["example"] == example
    OAS31Validator(media["schema"]).validate(example)


@pytest.mark.parametrize(("specs", "is_there"), [(TABLE, True), (None, True), (IMAGES, False)])
def test_a_table_may_be_csv_where_mlflow_reads_it(
    client: Client, cast: Cast, endpoint: Endpoint, specs: list[Any] | None, is_there: bool
) -> None:
    found = document_of(client, cast, endpoint, signature=signature(specs))

    post = found["paths"]["/serving-endpoints/live/invocations"]["post"]
    assert ("text/csv" in post["requestBody"]["content"]) is is_there
