"""Finalize reads the uploaded files into the version; whatever they hold, it answers clearly."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from portal.registry.models import ModelVersion
from tests.support.factories import UserFactory
from tests.support.registry import NAME, Api

pytestmark = pytest.mark.django_db
MLMODEL = """
databricks_runtime: client.5-gpu
flavors:
  python_function:
    loader_module: mlflow.pyfunc.model
    python_version: 3.11.7
metadata:
  entrypoint: python -m server
mlflow_version: 3.17.2
model_id: m-0123
signature:
  inputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 3]}}]'
  outputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1]}}]'
  params: null
"""


@pytest.fixture
def api() -> Api:
    api = Api(UserFactory())
    api.ok("POST", "registered-models/create", name=NAME)
    return api


def upload(api: Api, files: dict[str, str]) -> ModelVersion:
    api.ok("POST", "model-versions/create", name=NAME, source="s", model_id="")
    version = ModelVersion.objects.latest("pk")
    for name, content in files.items():
        path = version.files_directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return version


def finalize(api: Api, files: dict[str, str]) -> ModelVersion:
    version = upload(api, files)
    api.ok("POST", "model-versions/finalize", name=NAME, version=str(version.version))
    return ModelVersion.objects.get(pk=version.pk)


def test_the_facts_of_mlmodel_are_kept(api: Api) -> None:
    example = json.dumps({"inputs": [[1.0, 2.0, 3.0]]})
    version = finalize(
        api,
        {"MLmodel": MLMODEL, "requirements.txt": "numpy\n", "serving_input_example.json": example},
    )

    assert version.status == "READY"
    assert version.mlflow_version == "3.17.2"
    assert version.python_version == "3.11.7"
    assert version.databricks_runtime == "client.5-gpu"
    assert not version.is_packed_for_cpu
    assert version.entrypoint == "python -m server"
    assert version.logged_model_id == "m-0123"
    assert version.requirements == "numpy\n"
    assert version.signature is not None
    assert json.loads(version.signature["inputs"])[0]["tensor-spec"]["shape"] == [-1, 3]
    assert version.input_example == {"inputs": [[1.0, 2.0, 3.0]]}
    assert version.size_bytes == len(MLMODEL) + len("numpy\n") + len(example)
    assert not version.is_packed


def test_the_answer_has_the_model_id_and_can_be_had_again(api: Api) -> None:
    version = upload(api, {"MLmodel": MLMODEL})
    of_it = {"name": NAME, "version": str(version.version)}

    first = api.ok("POST", "model-versions/finalize", **of_it)["model_version"]
    again = api.ok("POST", "model-versions/finalize", **of_it)["model_version"]

    assert first == again
    assert (first["status"], first["model_id"]) == ("READY", "m-0123")


@pytest.mark.parametrize(
    "mlmodel",
    [
        None,
        "",
        "just text",
        "[1, 2]",
        "flavors: [",
        "flavors: {}",
        "a: &a [x]\nb: *c",
        "!!python/object/apply:os.system ['true']",
        "when: 99999-99-99",
        "[" * 5000,
        "x: " + "y" * 9 * 2**20,
        "a: " + "[]," * 10 + "\nx: [" + "[]," * 150_000 + "[]]",
        "x: " + "9" * 5000,
    ],
    ids=lambda text: str(text)[:20],
)
def test_files_without_a_readable_mlmodel_fail_the_registration(
    api: Api, mlmodel: str | None
) -> None:
    version = upload(api, {"other": "x"} if mlmodel is None else {"MLmodel": mlmodel})
    of_it = {"name": NAME, "version": str(version.version)}

    status, body = api("POST", "model-versions/finalize", **of_it)

    assert (status, body["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert "MLmodel" in body["message"]
    found = api.ok("GET", "model-versions/get", **of_it)["model_version"]
    assert found["status"] == "FAILED_REGISTRATION"
    assert "MLmodel" in found["status_message"]
    assert api.refusal("POST", "model-versions/finalize", **of_it) == (400, "INVALID_STATE")


def test_both_tars_make_it_packed(api: Api) -> None:
    tars = {f"_databricks/model_{n}.tar": "x" for n in ("version", "environment")}

    assert finalize(api, {"MLmodel": MLMODEL} | tars).is_packed
    tars["_databricks/model_environment.tar"] = ""
    assert not finalize(api, {"MLmodel": MLMODEL} | tars).is_packed


def test_a_cpu_runtime_is_known(api: Api) -> None:
    version = finalize(api, {"MLmodel": MLMODEL.replace("client.5-gpu", "client.5")})

    assert version.is_packed_for_cpu


@pytest.mark.parametrize(
    ("files", "body"),
    [
        ({"serving_input_example.json": {"inputs": [1]}}, {"inputs": [1]}),
        ({"input_example.json": {"columns": ["a"], "data": [[1]]}}, "dataframe_split"),
        ({"input_example.json": [[1, 2]]}, {"inputs": [[1, 2]]}),
        ({"input_example.json": {"a": [1]}}, {"inputs": {"a": [1]}}),
        ({}, None),
    ],
)
def test_the_input_example_becomes_a_serving_request(
    api: Api, files: dict[str, Any], body: Any
) -> None:
    written = {name: json.dumps(content) for name, content in files.items()}
    version = finalize(api, {"MLmodel": MLMODEL} | written)

    if isinstance(body, str):
        assert set(version.input_example or {}) == {body}
    else:
        assert version.input_example == body


@pytest.mark.parametrize("text", ["{", '{"inputs": ["\\u0000"]}', "[" * 5000])
def test_an_unreadable_example_is_left_out(api: Api, text: str) -> None:
    version = finalize(api, {"MLmodel": MLMODEL, "serving_input_example.json": text})

    assert version.status == "READY"
    assert version.input_example is None


def test_a_yaml_bomb_costs_nothing(api: Api) -> None:
    merged = "".join(
        f"m{n}: &m{n}\n  <<: [{', '.join([f'*m{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    laughs = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    itself = "self: &self {more: *self}\n"
    bomb = f"m0: &m0 {{x: 1}}\n{merged}a0: &a0 [lol]\n{laughs}{itself}{MLMODEL}"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.monotonic()

    version = finalize(api, {"MLmodel": bomb})

    assert version.mlflow_version == "3.17.2"
    assert time.monotonic() - begin < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


@pytest.mark.parametrize(
    "example",
    [
        "[" * 100_000,
        "[" * 200 + "]" * 200,
        '{"inputs": ' + '{"a": ' * 100 + "1" + "}" * 101,
        '{"inputs": ["\\ud800"]}',
        '{"inputs": ["\\u0000"]}',
        '{"inputs": [' + "9" * 5000 + "]}",
        '{"inputs": [' + "1," * 9 * 2**20 + "1]}",
    ],
    ids=["open", "deep", "deep object", "surrogate", "NUL", "long number", "long"],
)
def test_an_example_that_is_a_bomb_is_left_out(api: Api, example: str) -> None:
    version = finalize(api, {"MLmodel": MLMODEL, "serving_input_example.json": example})

    assert version.status == "READY"
    assert version.input_example is None


def test_a_long_example_loses_its_last_rows(api: Api) -> None:
    rows = [[float(n)] * 10_000 for n in range(100)]
    example = json.dumps({"inputs": rows})
    version = finalize(api, {"MLmodel": MLMODEL, "serving_input_example.json": example})

    assert version.input_example is not None
    kept = version.input_example["inputs"]
    assert 10 < len(kept) < 100
    assert kept == rows[: len(kept)]


def test_not_a_number_in_an_example_becomes_null(api: Api) -> None:
    text = '{"inputs": [[NaN, 1.0]]}'
    version = finalize(api, {"MLmodel": MLMODEL, "serving_input_example.json": text})

    assert version.input_example == {"inputs": [[None, 1.0]]}


def test_a_number_beyond_all_bounds_becomes_null(api: Api) -> None:
    example = '{"inputs": [[1e999, -1e999, 1.5]]}'
    version = finalize(api, {"MLmodel": MLMODEL, "serving_input_example.json": example})

    assert version.input_example == {"inputs": [[None, None, 1.5]]}


def test_a_signature_that_is_not_json_is_left_out(api: Api) -> None:
    text = MLMODEL.replace("'[{", "'{").replace("}]'", "]'")

    assert finalize(api, {"MLmodel": text}).signature is None


def test_the_source_is_never_opened(api: Api, tmp_path: Path) -> None:
    (tmp_path / "MLmodel").write_text(MLMODEL)
    api.ok("POST", "model-versions/create", name=NAME, source=str(tmp_path))

    found = api.refusal("POST", "model-versions/finalize", name=NAME, version="1")

    assert found == (400, "INVALID_PARAMETER_VALUE")
