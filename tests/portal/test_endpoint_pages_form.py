"""The create form through Django's client: the checkbox, the errors, the summary."""

from __future__ import annotations

import pytest

from portal.endpoints.models import Endpoint
from portal.previews.services import set_enabled
from portal.registry.models import ModelVersion
from tests.support.endpoint_form import CHECKBOX, browser, form, page_of, with_fields
from tests.support.factories import (
    Cast,
    ModelAliasFactory,
    ModelVersionFactory,
    live_endpoint,
    make_cast,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture
def cast() -> Cast:
    found = make_cast()
    set_enabled("throughput_optimized", True, found.admin.user)
    return found


@pytest.fixture
def version() -> ModelVersion:
    found: ModelVersion = ModelVersionFactory(staged=True, model__name="main.vision.detector")
    return found


# ---------------------------------------------------------------- the checkbox


def test_the_checkbox_is_in_the_page_when_every_rule_passes(
    cast: Cast, version: ModelVersion
) -> None:
    page = page_of(browser(cast.stranger).post("/endpoints/new/", form(action="refresh")))

    assert CHECKBOX in page
    assert "Open Previews" not in page


def test_no_checkbox_while_the_preview_is_off(cast: Cast, version: ModelVersion) -> None:
    set_enabled("throughput_optimized", False, cast.admin.user)

    ordinary = page_of(browser(cast.stranger).post("/endpoints/new/", form(action="refresh")))
    admin = page_of(browser(cast.admin).post("/endpoints/new/", form(action="refresh")))

    assert CHECKBOX not in ordinary + admin
    assert "Ask a workspace admin" in ordinary
    assert "Open Previews" not in ordinary
    assert "Open Previews" in admin


def test_no_checkbox_on_a_cpu_type(cast: Cast, version: ModelVersion) -> None:
    fields = with_fields(**{"entity-0-workload_type": "CPU", "action": "refresh"})

    page = page_of(browser(cast.stranger).post("/endpoints/new/", fields))

    assert CHECKBOX not in page
    assert "Choose a GPU workload type, such as GPU_SMALL." in page


def test_no_checkbox_for_a_custom_entrypoint(cast: Cast, version: ModelVersion) -> None:
    ModelVersion.objects.update(entrypoint="python serve.py")

    page = page_of(browser(cast.stranger).post("/endpoints/new/", form(action="refresh")))

    assert CHECKBOX not in page
    assert "Log the model without metadata.entrypoint." in page


def test_an_entrypoint_without_a_packed_environment_is_warned_of_before_it_is_deployed(
    cast: Cast, version: ModelVersion
) -> None:
    ModelVersion.objects.update(entrypoint="python serve.py")
    fields = form(action="refresh")
    before = page_of(browser(cast.stranger).post("/endpoints/new/", fields))
    ModelVersion.objects.update(is_packed=False)

    after = page_of(browser(cast.stranger).post("/endpoints/new/", fields))

    assert "it cannot be deployed" in after
    assert "it cannot be deployed" not in before
    assert "The model&#x27;s own server" in before


def test_no_checkbox_for_a_version_that_is_not_express_and_its_snippet_is_linked(
    cast: Cast, version: ModelVersion
) -> None:
    ModelVersionFactory(model=version.model, version=2)
    fields = with_fields(**{"entity-0-version": "2", "action": "refresh"})

    page = page_of(browser(cast.stranger).post("/endpoints/new/", fields))

    assert CHECKBOX not in page
    assert "Register it again with" in page
    assert "/models/main.vision.detector/versions/2/#express" in page


def test_while_staging_runs_the_checkbox_is_there_with_a_note(
    cast: Cast, version: ModelVersion
) -> None:
    ModelVersionFactory(model=version.model, version=2, staging=True)
    fields = with_fields(**{"entity-0-version": "2", "action": "refresh"})

    page = page_of(browser(cast.stranger).post("/endpoints/new/", fields))

    assert CHECKBOX in page
    assert "still being staged: the deployment waits for it" in page


def test_a_version_packed_on_a_cpu_runtime_is_flagged_on_a_gpu_type(
    cast: Cast, version: ModelVersion
) -> None:
    ModelVersion.objects.update(databricks_runtime="client.5")
    client = browser(cast.stranger)

    on_gpu = page_of(client.post("/endpoints/new/", form(action="refresh")))
    fields = with_fields(**{"entity-0-workload_type": "CPU", "action": "refresh"})
    on_cpu = page_of(client.post("/endpoints/new/", fields))

    assert "packed on the CPU runtime client.5" in on_gpu
    assert "packed on the CPU runtime" not in on_cpu


def test_the_part_of_one_entity_comes_alone_for_script(cast: Cast, version: ModelVersion) -> None:
    answer = browser(cast.stranger).post(
        "/endpoints/new/entity/0/", form(), headers={"HX-Request": "true"}
    )

    page = page_of(answer)
    assert CHECKBOX in page
    assert page.strip().startswith('<div class="form-section" id="entity-0-choice">')
    assert answer["HX-Trigger"] == "form-changed"


def test_a_newly_picked_model_brings_its_newest_version(cast: Cast, version: ModelVersion) -> None:
    other = ModelVersionFactory(model__name="main.nlp.bert", version=7)
    fields = with_fields(**{"entity-0-model": other.model.name, "action": "refresh"})

    page = page_of(browser(cast.stranger).post("/endpoints/new/", fields))

    assert '<option value="7" selected>' in page


# ---------------------------------------------------------------- creating


def test_create_with_throughput_optimized(cast: Cast, version: ModelVersion) -> None:
    fields = with_fields(
        **{
            "entity-0-throughput_optimized": "on",
            "entity-0-env-0-name": "LEVEL",
            "entity-0-env-0-value": "info",
            "entity-0-env-1-name": "",
            "entity-0-env-1-value": "",
            "entity-0-max_batch_size": "16",
            "entity-0-preferred_batch_size": "4,8 , 16",
            "entity-0-max_queue_delay_microseconds": "",
            "tag-0-name": "team",
            "tag-0-value": "cv",
            "description": "Finds cars",
        }
    )

    answer = browser(cast.stranger).post("/endpoints/new/", fields)

    assert answer["Location"] == "/endpoints/detector/"
    endpoint = Endpoint.objects.get(name="detector")
    assert endpoint.pending_config is not None
    entity = endpoint.pending_config.entities.get()
    assert entity.throughput_optimized
    assert (entity.name, entity.workload_type) == ("detector-1", "GPU_SMALL")
    assert entity.environment_vars == {"LEVEL": "info"}
    assert entity.batching == {"max_batch_size": 16, "preferred_batch_size": [4, 8, 16]}
    assert endpoint.description == "Finds cars"
    assert [str(tag) for tag in endpoint.tags.all()] == ["team=cv"]


BAD_BATCHING = {
    "max_batch_size": ("0", "Give a whole number from 1 to 4096."),
    "preferred_batch_size": ("8; 64", "Give at most 16 whole numbers from 1 to 4096."),
    "max_queue_delay_microseconds": ("1.5", "Give a whole number from 0 to 10000000."),
    "instance_count": ("17", "Give a whole number from 1 to 16."),
    "max_queue_size": ("many", "Give a whole number from 1 to 100000."),
    "threads_per_instance": ("-2", "Give a whole number from 1 to 256."),
}


def test_each_bad_batching_value_is_told_at_its_field(cast: Cast, version: ModelVersion) -> None:
    bad = {f"entity-0-{key}": value for key, (value, _) in BAD_BATCHING.items()}
    fields = with_fields(bad, {"entity-0-throughput_optimized": "on"})

    answer = browser(cast.stranger).post("/endpoints/new/", fields)

    assert answer.status_code == 400
    errors = answer.context["errors"]
    expected = {f"entity-0-{key}": message for key, (_, message) in BAD_BATCHING.items()}
    assert {key: errors.get(key) for key in expected} == expected


def test_create_from_an_alias_with_a_custom_range(cast: Cast, version: ModelVersion) -> None:
    ModelAliasFactory(model_version=version)
    fields = with_fields(
        **{
            "entity-0-version": "@champion",
            "entity-0-scale_out": "Custom",
            "entity-0-min_concurrency": "8",
            "entity-0-max_concurrency": "24",
            "entity-0-scale_to_zero": "on",
        }
    )

    browser(cast.stranger).post("/endpoints/new/", fields)

    config = Endpoint.objects.get(name="detector").pending_config
    assert config is not None
    entity = config.entities.get()
    assert entity.entity_version == "1"
    assert (entity.min_provisioned_concurrency, entity.max_provisioned_concurrency) == (8, 24)
    assert entity.scale_to_zero_enabled
    assert not entity.throughput_optimized


def test_several_served_entities_share_the_traffic(cast: Cast, version: ModelVersion) -> None:
    second = {
        key.replace("entity-0", "entity-1"): value
        for key, value in form().items()
        if key.startswith("entity-0")
    }
    fields = with_fields(second, {"entity-0-traffic": "90", "entity-1-traffic": "10"})
    client = browser(cast.stranger)

    refused = client.post("/endpoints/new/", fields)
    page = page_of(refused)
    accepted = client.post("/endpoints/new/", fields | {"entity-1-name": "challenger"})

    assert refused.status_code == 400
    assert 'href="#entity-1-name"' in page
    assert accepted.status_code == 302
    config = Endpoint.objects.get(name="detector").pending_config
    assert config is not None
    assert [(e.name, e.traffic_percentage) for e in config.entities.all()] == [
        ("detector-1", 90),
        ("challenger", 10),
    ]


def test_traffic_must_total_100(cast: Cast, version: ModelVersion) -> None:
    second = {
        key.replace("entity-0", "entity-1"): value
        for key, value in form().items()
        if key.startswith("entity-0")
    }
    shares = {"entity-0-traffic": "90", "entity-1-traffic": "20", "entity-1-name": "b"}

    answer = browser(cast.stranger).post("/endpoints/new/", with_fields(second, shares))

    assert answer.status_code == 400
    assert "they must total 100" in page_of(answer)
    assert 'href="#entity-0-traffic"' in page_of(answer)


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"name": ""}, "name", "Give the endpoint a name."),
        ({"name": "no spaces"}, "name", "letters, digits, - and _ only"),
        ({"name": "databricks-x"}, "name", "reserved"),
        ({"name": "new"}, "name", "reserved"),
        ({"entity-0-model": ""}, "entity-0-model", "Pick a model."),
        ({"entity-0-version": ""}, "entity-0-version", "Pick a version."),
        ({"entity-0-version": "9"}, "entity-0-version", "9"),
        ({"entity-0-workload_type": "TPU"}, "entity-0-workload_type", "no workload type"),
        (
            {"entity-0-scale_out": "Custom", "entity-0-min_concurrency": "many"},
            "entity-0-min_concurrency",
            "Give a whole number",
        ),
        (
            {"entity-0-scale_out": "Custom", "entity-0-max_concurrency": "7"},
            "entity-0-max_concurrency",
            "multiple of 4",
        ),
        ({"entity-0-name": "a b"}, "entity-0-name", "is not a name"),
        (
            {"entity-0-env-0-name": "1X", "entity-0-env-0-value": "y"},
            "entity-0-env-0-name",
            "is not a variable name",
        ),
        (
            {"entity-0-env-0-name": "", "entity-0-env-0-value": "y"},
            "entity-0-env-0-name",
            "Give this variable a name",
        ),
        ({"entity-0-max_batch_size": "0"}, "entity-0-max_batch_size", "whole number"),
        ({"tag-0-name": "", "tag-0-value": "y"}, "tag-0-name", "Give this tag a key"),
    ],
)
def test_an_error_stands_at_its_field_and_nothing_is_lost(
    cast: Cast, version: ModelVersion, changed: dict[str, str], field: str, words: str
) -> None:
    fields = with_fields(**({"description": "Finds cars"} | changed))

    answer = browser(cast.stranger).post("/endpoints/new/", fields)

    page = page_of(answer)
    assert answer.status_code == 400
    assert f'<a href="#{field}">' in page
    at_field = page.split(f'id="{field}-error"')[1].split("</p>")[0]
    assert words in at_field
    assert "hidden" not in at_field.split(">")[0]
    assert "Finds cars" in page
    assert not Endpoint.objects.exists()


def test_all_that_is_wrong_is_said_at_once(cast: Cast, version: ModelVersion) -> None:
    fields = with_fields(
        {"name": "", "entity-0-name": "a b", "entity-0-env-0-name": "1X", "tag-0-name": ""},
        {"entity-0-env-0-value": "", "tag-0-value": "y"},
    )

    answer = browser(cast.stranger).post("/endpoints/new/", fields)

    wrong = {problem["field"] for problem in answer.context["problems"]}
    assert wrong == {"name", "entity-0-name", "entity-0-env-0-name", "tag-0-name"}


def test_a_name_that_is_taken_is_refused_and_told_while_typing(
    cast: Cast, version: ModelVersion
) -> None:
    live_endpoint(endpoint_name="detector")
    client = browser(cast.stranger)

    refused = client.post("/endpoints/new/", form())
    typed = client.get("/endpoints/new/name/?name=detector")
    free = client.get("/endpoints/new/name/?name=other")

    assert refused.status_code == 400
    assert 'href="#name"' in page_of(refused)
    assert "There is an endpoint detector already" in page_of(typed)
    assert "hidden" in page_of(free)


def test_a_checkbox_that_a_later_choice_forbids_is_refused_at_its_place(
    cast: Cast, version: ModelVersion
) -> None:
    fields = with_fields(**{"entity-0-throughput_optimized": "on", "entity-0-workload_type": "CPU"})

    answer = browser(cast.stranger).post("/endpoints/new/", fields)

    assert answer.status_code == 400
    assert 'href="#entity-0-throughput_optimized"' in page_of(answer)
    assert not Endpoint.objects.exists()


def test_a_form_that_is_sent_twice_makes_one_endpoint(cast: Cast, version: ModelVersion) -> None:
    client = browser(cast.stranger)

    first = client.post("/endpoints/new/", form())
    second = client.post("/endpoints/new/", form())

    assert first["Location"] == second["Location"] == "/endpoints/detector/"
    assert Endpoint.objects.count() == 1


def test_rows_are_added_and_removed_without_script(cast: Cast, version: ModelVersion) -> None:
    client = browser(cast.stranger)

    def after(action: str, **fields: str) -> str:
        return page_of(client.post("/endpoints/new/", with_fields(action=action, **fields)))

    assert 'id="entity-0-env-0-name"' in after("add-env:0")
    assert 'id="tag-0-name"' in after("add-tag")
    assert 'id="entity-1-model"' in after("add-entity")
    gone = after("remove-env:0:0", **{"entity-0-env-0-name": "A", "entity-0-env-1-name": "B"})
    assert 'value="A"' not in gone
    assert 'value="B"' in gone


def test_the_summary_says_what_will_run_and_the_same_as_an_api_call(
    cast: Cast, version: ModelVersion
) -> None:
    fields = with_fields(**{"entity-0-throughput_optimized": "on", "entity-0-scale_out": "Medium"})

    page = page_of(browser(cast.stranger).post("/endpoints/new/summary/", fields))

    assert "Triton, throughput optimized" in page
    assert "2 to 4 replicas" in page
    assert "emulated on the CPU" in page
    assert "POST /api/2.0/serving-endpoints" in page
    assert "&quot;throughput_optimized&quot;: true" in page
    assert "$DATABRICKS_TOKEN" in page
