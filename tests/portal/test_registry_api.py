"""The registry calls of the client contract: what they answer, and whom they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from portal.registry.models import ModelVersion, RegisteredModel
from tests.support.factories import UserFactory
from tests.support.registry import NAME, Api

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> Api:
    return Api(UserFactory())


@pytest.fixture
def model(owner: Api) -> str:
    owner.ok("POST", "registered-models/create", name=NAME)
    return NAME


@pytest.fixture
def version(owner: Api, model: str) -> str:
    body = owner.ok("POST", "model-versions/create", name=model, source="/home/me/model")
    return str(body["model_version"]["version"])


# ---------------------------------------------------------------- registered models


def test_a_model_is_registered_with_tags_and_description(owner: Api) -> None:
    body = owner.ok(
        "POST",
        "registered-models/create",
        name=NAME,
        description="finds things",
        tags=[{"key": "team", "value": "vision"}],
    )

    model = body["registered_model"]
    assert model["name"] == NAME
    assert model["description"] == "finds things"
    assert model["tags"] == [{"key": "team", "value": "vision"}]
    assert model["user_id"] == owner.user.username
    assert isinstance(model["creation_timestamp"], int)
    assert owner.ok("GET", "registered-models/get", name=NAME)["registered_model"] == model


def test_a_name_that_is_taken_is_a_409(owner: Api, model: str) -> None:
    found = owner.refusal("POST", "registered-models/create", name=model)

    assert found == (409, "RESOURCE_ALREADY_EXISTS")


@pytest.mark.parametrize(
    "name",
    [
        "detector",
        "a.b",
        "a.b.c.d",
        "a..c",
        ".b.c",
        "a.b.",
        "a.b.c/d",
        "a.b.c d",
        "a.b.\n",
        "../b.c.d",
        "a.b.c\\d",
        "a.b.c'",
        "a.b.%2e",
        "x" * 400,
        "a.b." + "x" * 101,
        "",
    ],
)
def test_a_name_without_three_plain_levels_is_refused(owner: Api, name: str) -> None:
    status, body = owner("POST", "registered-models/create", name=name)

    assert (status, body["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert "specify all three levels" in body["message"]


def test_a_nul_is_refused_in_bodies_and_queries(owner: Api) -> None:
    assert owner.refusal("POST", "registered-models/create", name="a.b.c\x00")[0] == 400
    assert owner.refusal("GET", "registered-models/get", name="a.b.c\x00")[0] == 400
    assert owner.refusal("GET", "model-versions/search", filter="run_id='\x00'")[0] == 400


def test_a_missing_model_is_a_404_with_the_registrys_word(owner: Api) -> None:
    found = owner.refusal("GET", "registered-models/get", name="main.default.nothing")

    assert found == (404, "RESOURCE_DOES_NOT_EXIST")


def test_descriptions_and_names_change(owner: Api, model: str, version: str) -> None:
    owner.ok("PATCH", "registered-models/update", name=model, description="new")
    owner.ok("PATCH", "registered-models/update", name=model, new_name="main.default.renamed")

    body = owner.ok("GET", "registered-models/get", name="main.default.renamed")
    assert body["registered_model"]["description"] == "new"
    assert owner.refusal("GET", "registered-models/get", name=model)[0] == 404
    owner.ok("GET", "model-versions/get", name="main.default.renamed", version=version)


def test_files_move_with_the_name_and_go_with_the_model(
    owner: Api, model: str, version: str, django_capture_on_commit_callbacks: Any
) -> None:
    folder = ModelVersion.objects.get().files_directory
    folder.mkdir(parents=True)
    (folder / "MLmodel").write_text("flavors: {}")

    owner.ok("PATCH", "registered-models/update", name=model, new_name="main.other.renamed")
    moved = ModelVersion.objects.get().files_directory
    assert (moved / "MLmodel").exists()
    assert not folder.exists()

    with django_capture_on_commit_callbacks(execute=True):
        owner.ok("DELETE", "registered-models/delete", name="main.other.renamed")
    assert not moved.exists()


def test_a_name_cannot_be_changed_to_one_that_is_taken(owner: Api, model: str) -> None:
    owner.ok("POST", "registered-models/create", name="main.default.other")

    found = owner.refusal(
        "PATCH", "registered-models/update", name=model, new_name="main.default.other"
    )

    assert found == (409, "RESOURCE_ALREADY_EXISTS")


def test_a_deleted_model_is_gone_with_its_versions(owner: Api, model: str, version: str) -> None:
    assert owner.ok("DELETE", "registered-models/delete", name=model) == {}

    assert owner.refusal("GET", "model-versions/get", name=model, version=version)[0] == 404
    assert not RegisteredModel.objects.exists()


def test_models_are_paged_by_name(owner: Api) -> None:
    for n in range(5):
        owner.ok("POST", "registered-models/create", name=f"main.default.m{n}")

    names, token, pages = [], "", 0
    while True:
        body = owner.ok("GET", "registered-models/search", max_results=2, page_token=token)
        names += [m["name"] for m in body["registered_models"]]
        pages += 1
        token = body.get("next_page_token", "")
        if not token:
            break

    assert names == [f"main.default.m{n}" for n in range(5)]
    assert pages == 3


@pytest.mark.parametrize("token", ["%%%", "AAAA", "\u00e9"])
def test_a_page_token_of_ones_own_is_a_400(owner: Api, token: str) -> None:
    assert owner.refusal("GET", "registered-models/search", page_token=token)[0] == 400
    assert owner.refusal("GET", "model-versions/search", page_token=token)[0] == 400


def test_a_list_of_models_costs_a_fixed_number_of_queries(
    owner: Api, django_assert_num_queries: Any
) -> None:
    for n in range(4):
        name = f"main.default.m{n}"
        owner.ok("POST", "registered-models/create", name=name, tags=[{"key": "a", "value": "b"}])
        owner.ok("POST", "model-versions/create", name=name, source="s")
        owner.ok("POST", "registered-models/alias", name=name, alias="champion", version="1")

    with django_assert_num_queries(6):  # token; groups; models; tags; aliases; their versions
        owner.ok("GET", "registered-models/search")
    with django_assert_num_queries(5):  # token; groups; versions; tags; aliases
        owner.ok("GET", "model-versions/search")


def test_model_tags_are_set_and_deleted(owner: Api, model: str) -> None:
    owner.ok("POST", "registered-models/set-tag", name=model, key="a", value="1")
    owner.ok("POST", "registered-models/set-tag", name=model, key="a", value="2")
    body = owner.ok("GET", "registered-models/get", name=model)
    assert body["registered_model"]["tags"] == [{"key": "a", "value": "2"}]

    owner.ok("DELETE", "registered-models/delete-tag", name=model, key="a")
    owner.ok("DELETE", "registered-models/delete-tag", name=model, key="a")
    assert owner.ok("GET", "registered-models/get", name=model)["registered_model"]["tags"] == []


# ---------------------------------------------------------------- aliases


def test_an_alias_is_set_moved_shown_and_deleted(owner: Api, model: str, version: str) -> None:
    owner.ok("POST", "model-versions/create", name=model, source="s")
    owner.ok("POST", "registered-models/alias", name=model, alias="champion", version="1")
    owner.ok("POST", "registered-models/alias", name=model, alias="champion", version="2")

    body = owner.ok("GET", "registered-models/alias", name=model, alias="champion")
    assert body["model_version"]["version"] == "2"
    assert body["model_version"]["aliases"] == [{"alias": "champion", "version": "2"}]
    body = owner.ok("GET", "registered-models/get", name=model)
    assert body["registered_model"]["aliases"] == [{"alias": "champion", "version": "2"}]
    body = owner.ok("GET", "model-versions/get", name=model, version="1")
    assert body["model_version"]["aliases"] == []

    owner.ok("DELETE", "registered-models/alias", name=model, alias="champion")
    found = owner.refusal("GET", "registered-models/alias", name=model, alias="champion")
    assert found == (404, "RESOURCE_DOES_NOT_EXIST")


def test_an_alias_of_a_missing_version_is_a_404(owner: Api, model: str) -> None:
    found = owner.refusal(
        "POST", "registered-models/alias", name=model, alias="champion", version="99"
    )

    assert found == (404, "RESOURCE_DOES_NOT_EXIST")


@pytest.mark.parametrize("alias", ["", "latest", "3", "v3", "a b", "a/b", "x" * 300])
def test_an_odd_alias_is_refused(owner: Api, version: str, alias: str) -> None:
    found = owner.refusal("POST", "registered-models/alias", name=NAME, alias=alias, version="1")

    assert found == (400, "INVALID_PARAMETER_VALUE")


# ---------------------------------------------------------------- model versions


def test_a_version_waits_for_its_files(owner: Api, model: str) -> None:
    body = owner.ok(
        "POST",
        "model-versions/create",
        name=model,
        source="/home/me/model",
        run_id="run1",
        feature_deps="",
        tags=[{"key": "n", "value": "3"}],
    )

    found = body["model_version"]
    assert found["version"] == "1"
    assert found["status"] == "PENDING_REGISTRATION"
    assert (found["source"], found["run_id"]) == ("/home/me/model", "run1")
    assert found["tags"] == [{"key": "n", "value": "3"}]
    assert found["storage_location"] == "/Models/main/default/detector/1"


def test_a_deleted_versions_number_is_not_given_again(owner: Api, model: str, version: str) -> None:
    owner.ok("DELETE", "model-versions/delete", name=model, version=version)

    body = owner.ok("POST", "model-versions/create", name=model, source="s")

    assert body["model_version"]["version"] == "2"


def test_versions_are_found_by_name_and_by_run(owner: Api, model: str) -> None:
    owner.ok("POST", "registered-models/create", name="main.default.other")
    owner.ok("POST", "model-versions/create", name=model, source="s", run_id="r1")
    owner.ok("POST", "model-versions/create", name=model, source="s", run_id="r2")
    owner.ok("POST", "model-versions/create", name="main.default.other", source="s", run_id="r1")

    def found(text: str) -> list[tuple[str, str]]:
        body = owner.ok("GET", "model-versions/search", filter=text)
        return [(v["name"].rpartition(".")[2], v["version"]) for v in body["model_versions"]]

    assert found(f"name='{model}'") == [("detector", "2"), ("detector", "1")]
    assert found(f'name = "{model}"') == [("detector", "2"), ("detector", "1")]
    assert found("run_id = 'r1'") == [("other", "1"), ("detector", "1")]
    assert found(f"run_id='r1' AND name='{model}'") == [("detector", "1")]
    assert found("name='it and that'") == []
    assert len(found("")) == 3


@pytest.mark.parametrize(
    "text", ["version='1'", "name", "name=1", "name='a' OR name='b'", "name='a' AND name='b'", "'"]
)
def test_another_filter_is_refused(owner: Api, text: str) -> None:
    found = owner.refusal("GET", "model-versions/search", filter=text)

    assert found == (400, "INVALID_PARAMETER_VALUE")


def test_versions_are_paged(owner: Api, model: str) -> None:
    for _ in range(3):
        owner.ok("POST", "model-versions/create", name=model, source="s")

    first = owner.ok("GET", "model-versions/search", max_results=2)
    second = owner.ok(
        "GET", "model-versions/search", max_results=2, page_token=first["next_page_token"]
    )

    assert [v["version"] for v in first["model_versions"]] == ["3", "2"]
    assert [v["version"] for v in second["model_versions"]] == ["1"]
    assert "next_page_token" not in second


def test_the_smaller_calls_answer(owner: Api, model: str, version: str) -> None:
    of_it = {"name": model, "version": version}
    body = owner.ok("PATCH", "model-versions/update", **of_it, description="d")
    assert body["model_version"]["description"] == "d"
    owner.ok("POST", "model-versions/set-tag", **of_it, key="a", value="b")
    owner.ok("DELETE", "model-versions/delete-tag", **of_it, key="a")
    owner.ok("POST", "model-versions/emit-lineage", **of_it, model_version_lineage_info={"x": 1})
    assert owner.ok("GET", "model-versions/get-download-uri", **of_it)["artifact_uri"]
    for operation in ("MODEL_VERSION_OPERATION_READ", "MODEL_VERSION_OPERATION_READ_WRITE"):
        body = owner.ok(
            "POST", "model-versions/generate-temporary-credentials", **of_it, operation=operation
        )
        assert body["credentials"]["storage_mode"] == "DEFAULT_STORAGE"
    path = "registered-models:is-databricks-sdk-models-artifact-repository-enabled"
    assert owner.ok("GET", path) == {"is_databricks_sdk_models_artifact_repository_enabled": True}


@pytest.mark.parametrize("number", ["0", "-1", "1.0", "x", "", "99999999999", "\u0661"])
def test_an_odd_version_number_is_a_400(owner: Api, model: str, number: str) -> None:
    assert owner.refusal("GET", "model-versions/get", name=model, version=number)[0] == 400
