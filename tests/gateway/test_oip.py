"""The unmodified `tritonclient.http` against the gateway, before real replicas."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import mlflow.models
import numpy as np
import pytest
from mlflow.types import ColSpec, DataType, Schema, TensorSpec

from serving.spec import Backend, LimitKey, RateLimit
from tests.support.gateway import TOKEN, GatewayServer, Publisher, entity, wait_until_answered
from tests.support.launcher import Launcher
from tests.support.open_inference import ANYTHING, SCALED, TABLE, Asker
from tests.support.triton_client import Refused, TritonClient

pytestmark = pytest.mark.triton

TENSORS = mlflow.models.ModelSignature(
    inputs=Schema(
        [
            TensorSpec(np.dtype("float32"), (-1, 3), "x"),
            TensorSpec(np.dtype("int64"), (-1,), "k"),
        ]
    ),
    outputs=Schema(
        [
            TensorSpec(np.dtype("float32"), (-1, 3), "scaled"),
            TensorSpec(np.dtype("int64"), (-1,), "k"),
        ]
    ),
)
COLUMNS = mlflow.models.ModelSignature(
    inputs=Schema([ColSpec(DataType.string, "name"), ColSpec(DataType.double, "amount")])
)

INFER = """
inputs = [
    tensor("x", np.array(rows, dtype=np.float32), "FP32", binary),
    tensor("k", np.array([1 + n for n in range(len(rows))], dtype=np.int64), "INT64", binary),
]
result = arrays(client.infer("model", inputs, headers=headers))
"""


@pytest.fixture(scope="module")
def triton() -> Iterator[TritonClient]:
    client = TritonClient()
    yield client
    client.stop()


@pytest.fixture(scope="module")
def scaled(launcher: Launcher) -> str:
    return launcher.start("scald", SCALED, TENSORS)


@pytest.fixture(scope="module")
def table(launcher: Launcher) -> str:
    return launcher.start("table", TABLE, COLUMNS)


@pytest.fixture(scope="module")
def anything(launcher: Launcher) -> str:
    return launcher.start("anyth", ANYTHING, None)


@pytest.fixture
def ask(
    gateway: GatewayServer, publisher: Publisher, launcher: Launcher, triton: TritonClient
) -> Asker:
    return Asker(gateway, publisher, launcher, triton)


def scaled_rows(rows: list[list[float]]) -> dict[str, Any]:
    return {
        "scaled": ["float32", [[(n + 1) * v for v in row] for n, row in enumerate(rows)]],
        "k": ["int64", [n + 2 for n in range(len(rows))]],
    }


@pytest.mark.parametrize("binary", [True, False])
def test_named_tensors_go_in_and_come_out(scaled: str, ask: Asker, binary: bool) -> None:
    rows = [[1.5, 2.0, 3.0], [4.0, 5.0, 6.0]]

    assert ask("scald", scaled, INFER, rows=rows, binary=binary) == scaled_rows(rows)


def test_more_rows_than_the_largest_batch_come_back_in_order(scaled: str, ask: Asker) -> None:
    rows = [[float(n), 1.0, 2.0] for n in range(100)]

    assert ask("scald", scaled, INFER, rows=rows) == scaled_rows(rows)


def test_outputs_are_chosen_and_come_in_the_form_that_is_asked_for(scaled: str, ask: Asker) -> None:
    code = """
inputs = [
    tensor("x", np.ones((1, 3), dtype=np.float32), "FP32"),
    tensor("k", np.array([2], dtype=np.int64), "INT64"),
]
wanted = [
    http.InferRequestedOutput("k", binary_data=False),
    http.InferRequestedOutput("scaled", binary_data=True),
]
answer = client.infer(
    "scald", inputs, model_version="1", outputs=wanted, request_id="seven",
    parameters={"factor": 3}, headers=headers,
)
result = [answer.get_response(), answer.as_numpy("scaled")]
"""

    response, values = ask("scald", scaled, code)

    assert (response["id"], response["model_name"], response["model_version"]) == (
        "seven",
        "scald",
        "1",
    )
    assert response["outputs"] == [
        {"name": "k", "datatype": "INT64", "shape": [1], "data": [3]},
        {
            "name": "scaled",
            "datatype": "FP32",
            "shape": [1, 3],
            "parameters": {"binary_data_size": 12},
        },
    ]
    assert values == [[2.0, 2.0, 2.0]]


def test_the_server_and_the_model_say_what_they_are(scaled: str, ask: Asker) -> None:
    code = """
name = "main.default.model"
result = [
    client.is_server_live(headers=headers),
    client.is_server_ready(headers=headers),
    client.is_model_ready(name, headers=headers),
    client.get_server_metadata(headers=headers)["name"],
    client.get_model_metadata(name, headers=headers),
    client.get_model_config(name, headers=headers)["input"][0],
    client.get_inference_statistics(name, headers=headers)["model_stats"][0]["name"],
]
"""

    live, ready, model_ready, server, metadata, config, statistics = ask("scald", scaled, code)

    assert (live, ready, model_ready, server) == (True, True, True, "shoal")
    assert metadata == {
        "name": "main.default.model",
        "versions": ["1"],
        "platform": "mlflow_pyfunc",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "k", "datatype": "INT64", "shape": [-1]},
        ],
        "outputs": [
            {"name": "scaled", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "k", "datatype": "INT64", "shape": [-1]},
        ],
    }
    assert config == {"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 3]}
    assert statistics == "main.default.model"


def test_text_columns_are_bytes_and_a_frame_is_a_tensor_a_column(table: str, ask: Asker) -> None:
    code = """
inputs = [
    tensor("name", np.array([[n.encode()] for n in names], dtype=np.object_), "BYTES", binary),
    tensor("amount", np.array([0.5, 1.5, 2.5], dtype=np.float32), "FP32", binary),
]
result = arrays(client.infer("model", inputs, headers=headers))
"""
    names = ["å", "longer", "日本語です"]

    for binary in (True, False):
        found = ask("table", table, code, names=names, binary=binary)

        assert found == {
            "name": ["object", names],
            "amount": ["float64", [0.5, 1.5, 2.5]],
            "twice": ["float64", [1.0, 3.0, 5.0]],
            "long": ["bool", [False, True, True]],
        }


def test_a_model_without_a_signature_takes_tensors_and_whole_requests(
    anything: str, ask: Asker
) -> None:
    code = """
whole = json.dumps({"dataframe_records": [{"a": 1}, {"a": 2}]}).encode()
as_json = client.infer("model", [tensor("json", np.array([whole]), "BYTES")], headers=headers)
numbers = np.array([[1, 2], [3, 4]], dtype=np.int32)
as_numbers = client.infer("model", [tensor("any", numbers, "INT32")], headers=headers)
result = [
    arrays(as_json),
    arrays(as_numbers),
    client.get_model_metadata("model", headers=headers)["inputs"],
]
"""

    as_json, as_numbers, inputs = ask("anyth", anything, code)

    assert as_json == {"output_0": ["object", ["DataFrame {'a': 1}", "DataFrame {'a': 2}"]]}
    assert as_numbers == {"output_0": ["object", ["ndarray [1 2]", "ndarray [3 4]"]]}
    assert inputs == [{"name": "json", "datatype": "BYTES", "shape": [1]}]


def test_the_standard_backend_answers_the_same(launcher: Launcher, scaled: str, ask: Asker) -> None:
    address = launcher.launch("plain", launcher.models["scald"], backend=Backend.STANDARD)
    standard = {"backend": Backend.STANDARD}
    rows = [[1.5, 2.0, 3.0], [4.0, 5.0, 6.0]]

    assert ask("scald", address, INFER, rows=rows, changes=standard) == scaled_rows(rows)
    with pytest.raises(Refused, match="must not be negative"):
        ask("scald", address, INFER, rows=[[-1, 0, 0]], changes=standard)


def infer(arguments: str) -> str:
    return f"client.infer({arguments}, headers=headers)"


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        (infer('"other", [tensor("x", np.ones(1), "FP64")]'), "404", "no model 'other'"),
        (infer('"model", [tensor("y", np.ones(1), "FP64")]'), "400", "no input 'y'"),
        (
            infer('"model", [tensor("x", np.ones((1, 3)), "FP64"), k]'),
            "400",
            "'x' is FP64; the model takes FP32",
        ),
        (
            infer('"model", [tensor("x", np.ones((1, 2), np.float32), "FP32"), k]'),
            "400",
            "shape [1, 2]; the model takes [-1, 3]",
        ),
        (
            infer('"model", [x]'),
            "400",
            "Input 'k' is missing. Its inputs are 'x' (FP32 [-1, 3]), 'k' (INT64 [-1]).",
        ),
        (
            infer('"model", [x, tensor("k", np.ones(2, np.int64), "INT64")]'),
            "400",
            "the same number of rows",
        ),
        (infer('"model", [x, k], outputs=[http.InferRequestedOutput("z")]'), "400", "output 'z'"),
        (infer('"model", [region, k]'), "501", "Shared memory is not offered"),
        (infer('"model", [x, k], sequence_id=3'), "501", "Sequences are not offered"),
        ("client.get_model_repository_index(headers)", "501", "not loaded by this protocol"),
        ("client.get_system_shared_memory_status(headers=headers)", "501", "Shared memory is not"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_client_s_terms(
    scaled: str, ask: Asker, code: str, status: str, words: str
) -> None:
    given = """
x = tensor("x", np.ones((1, 3), np.float32), "FP32")
k = tensor("k", np.ones(1, np.int64), "INT64")
region = http.InferInput("x", [1, 3], "FP32")
region.set_shared_memory("r", 12)
"""

    with pytest.raises(Refused) as refused:
        ask("scald", scaled, given + code)

    assert refused.value.status == status
    assert words in str(refused.value)


def test_an_error_has_the_fields_of_both_protocols(scaled: str, ask: Asker) -> None:
    with pytest.raises(Refused, match="must not be negative"):
        ask("scald", scaled, INFER, rows=[[-1, 2, 3]])

    response = ask.post(b'{"inputs": []}')

    assert response.status_code == 400
    fields = response.json()
    assert fields["error"] == fields["message"]
    assert fields.keys() == {"error", "error_code", "message", "details", "request_id"}


def test_packed_requests_are_unpacked_within_the_limit(
    scaled: str, ask: Asker, start_gateway: Callable[..., GatewayServer]
) -> None:
    code = INFER.replace("headers=headers", "headers=headers, request_compression_algorithm=how")
    rows = [[1.0, 2.0, 3.0]]

    for how in ("gzip", "deflate"):
        assert ask("scald", scaled, code, rows=rows, how=how) == scaled_rows(rows)

    small = start_gateway(max_request_bytes=100_000)
    wait_until_answered(small, 400, body=b"no JSON", endpoint=ask.endpoint)
    bomb = zlib.compress(b" " * 50_000_000)
    responses = [
        ask.post(body, {"Content-Encoding": encoding}, gateway=small)
        for body, encoding in ((bomb, "deflate"), (b"x", "gzip"), (bomb[:-9], "gzip"), (b"x", "br"))
    ]
    assert [response.status_code for response in responses] == [400] * 4
    assert "larger than 100000 bytes" in responses[0].json()["error"]


@pytest.mark.parametrize(
    ("body", "header_length", "words"),
    [
        (b"[]", None, "has to be a JSON object"),
        (b"{", None, "not valid JSON"),
        (b'{"inputs": [{"name": "x"}]}', None, "datatype None"),
        (
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, -3], "data": []}]}',
            None,
            "whole numbers",
        ),
        (
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1]}]}',
            None,
            "Input 'k' is missing",
        ),
        (b"{}", "999", "the body has 2 bytes"),
        (b"{}", "x", "whole number"),
        (
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], '
            b'"parameters": {"binary_data_size": 12}}]}',
            None,
            "0 bytes are left",
        ),
        (
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [999999999999, 3], "data": '
            b'[1, 2]}, {"name": "k", "datatype": "INT64", "shape": [1], "data": [1]}]}',
            None,
            "Input 'x' has 2 elements",
        ),
        (
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, "a", 2]},'
            b' {"name": "k", "datatype": "INT64", "shape": [1], "data": [1]}]}',
            None,
            "no regular list of FP32",
        ),
    ],
)
def test_bodies_that_are_no_inference_requests_are_named(
    scaled: str,
    ask: Asker,
    gateway: GatewayServer,
    body: bytes,
    header_length: str | None,
    words: str,
) -> None:
    ask("scald", scaled, "result = 1")
    length = {} if header_length is None else {"Inference-Header-Content-Length": header_length}

    response = ask.post(body, length)

    assert response.status_code == 400, response.text
    assert words in response.json()["error"]


def test_levels_limits_and_sizes_hold_here_too(
    scaled: str, ask: Asker, publisher: Publisher
) -> None:
    publisher.principal("viewer")
    viewer = {"user_levels": {"viewer": "CAN_VIEW", "querier": "CAN_QUERY"}}
    look = 'result = client.get_model_metadata("model", headers=headers)["name"]'
    rows = [[1.0, 2.0, 3.0]]

    assert ask("scald", scaled, look, token="viewer", route=viewer) == "model"
    with pytest.raises(Refused) as refused:
        ask("scald", scaled, INFER, token="viewer", route=viewer, rows=rows)
    assert refused.value.status == "403"
    with pytest.raises(Refused) as refused:
        ask("scald", scaled, look, token="viewer")
    assert refused.value.status == "404"
    with pytest.raises(Refused) as refused:
        ask("scald", scaled, look, token="nobody")
    assert refused.value.status == "401"

    response = ask.post(b" " * (17 * 2**20))
    assert response.status_code == 400
    assert "larger than 16 MB" in response.json()["error"]

    limited = {"rate_limits": (RateLimit(key=LimitKey.ENDPOINT, calls=1),)}
    with pytest.raises(Refused) as refused:
        ask("scald", scaled, INFER + INFER, rows=rows, route=limited)
    assert refused.value.status == "429"


def test_a_served_entity_is_addressed_by_path_by_name_and_by_version(
    scaled: str, ask: Asker, launcher: Launcher
) -> None:
    signature = launcher.models["scald"].signature
    served = ask.publish(
        entity(scaled, name="a", signature=signature, traffic_percentage=100),
        entity(scaled, name="b", signature=signature, traffic_percentage=0, entity_version="2"),
    )
    code = """
x = tensor("x", np.ones((1, 3), np.float32), "FP32")
k = tensor("k", np.ones(1, np.int64), "INT64")
answer = client.infer(model, [x, k], model_version=version, headers=headers)
result = answer.get_response()["model_version"]
"""

    def version_of(address: str, model: str, version: str = "") -> Any:
        return ask.triton.run(address, TOKEN, code, model=model, version=version)

    assert version_of(f"{served}/served-models/b", "model") == "2"
    assert version_of(served, "b") == "2"
    assert version_of(served, "main.default.model", "2") == "2"
    assert version_of(served, "model") == "1"
    with pytest.raises(Refused, match="no model 'model' version '3'"):
        version_of(served, "model", "3")
