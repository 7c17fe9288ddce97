"""The edit form through Django's client: filled, with what changes, saved and deployed."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from portal.endpoints.models import BackendDecision, Endpoint, ServedEntity
from portal.endpoints.states import ConfigUpdate
from portal.previews.services import set_enabled
from portal.registry.models import ModelVersion
from tests.support.endpoint_form import CHECKBOX, browser, page_of, with_fields
from tests.support.factories import (
    Cast,
    DeploymentFactory,
    EndpointConfigFactory,
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


@pytest.fixture
def endpoint(cast: Cast, version: ModelVersion) -> Endpoint:
    return cast.share(
        live_endpoint(endpoint_name="detector", model_version=version, name="current")
    )


def edited(**fields: Any) -> dict[str, Any]:
    return with_fields(
        **{
            "entity-0-was_named": "current",
            "entity-0-name": "current",
            "entity-0-throughput_optimized": "on",
        }
        | fields
    )


def without_checkbox(**fields: Any) -> dict[str, Any]:
    sent = edited(**fields)
    del sent["entity-0-throughput_optimized"]
    return sent


def test_edit_is_filled_with_what_is_there(cast: Cast, endpoint: Endpoint) -> None:
    page = page_of(browser(cast.manager).get("/endpoints/detector/edit/"))

    assert '<option value="GPU_SMALL" selected>' in page
    assert f"{CHECKBOX} checked" in page
    assert "Takes effect with the next deployment" in page
    assert "Save and deploy" in page
    assert "Nothing yet." in page


def test_edit_shows_what_changes(cast: Cast, endpoint: Endpoint) -> None:
    fields = without_checkbox(**{"entity-0-scale_out": "Medium", "description": "New"})

    page = page_of(browser(cast.manager).post("/endpoints/detector/edit/summary/", fields))

    changes = page.split('id="changes"')[1]
    for old, new in (("on", "off"), ("Small", "Medium")):
        assert f'<del class="break">{old}</del> <ins class="break">{new}</ins>' in changes
    assert '<ins class="break">New</ins>' in changes
    assert "PUT /api/2.0/serving-endpoints/detector/config" in page


def test_save_makes_a_new_config_and_deploys_it(cast: Cast, endpoint: Endpoint) -> None:
    answer = browser(cast.manager).post("/endpoints/detector/edit/", without_checkbox())

    assert answer["Location"] == "/endpoints/detector/"
    endpoint.refresh_from_db()
    assert endpoint.config_update == ConfigUpdate.IN_PROGRESS
    assert endpoint.pending_config is not None
    assert endpoint.pending_config.version == 2
    assert not endpoint.pending_config.entities.get().throughput_optimized
    assert endpoint.active_config is not None
    assert endpoint.active_config.entities.get().throughput_optimized


def test_description_and_tags_need_no_deployment(cast: Cast, endpoint: Endpoint) -> None:
    fields = edited(**{"description": "Finds cars", "tag-0-name": "team", "tag-0-value": "cv"})

    browser(cast.manager).post("/endpoints/detector/edit/", fields)

    endpoint.refresh_from_db()
    assert endpoint.description == "Finds cars"
    assert [str(tag) for tag in endpoint.tags.all()] == ["team=cv"]
    assert endpoint.config_update == ConfigUpdate.NOT_UPDATING


def test_edit_shows_batching_overrides_and_what_is_in_force_without_them(
    cast: Cast, endpoint: Endpoint
) -> None:
    overrides = {"max_queue_size": 512, "preferred_batch_size": [4, 8]}
    in_force = {
        "max_batch_size": 32,
        "max_queue_size": 512,
        "sources": {"max_batch_size": "profile", "max_queue_size": "override"},
    }
    ServedEntity.objects.update(batching=overrides)
    BackendDecision.objects.update(batching=in_force)

    page = page_of(browser(cast.manager).get("/endpoints/detector/edit/"))

    assert 'name="entity-0-max_queue_size" value="512"' in page
    assert 'name="entity-0-preferred_batch_size" value="4, 8"' in page
    assert 'placeholder="automatic, now 32"' in page
    assert "automatic, now 512" not in page


def test_an_override_that_is_emptied_is_gone_and_the_call_says_so(
    cast: Cast, endpoint: Endpoint
) -> None:
    ServedEntity.objects.update(batching={"max_batch_size": 8, "preferred_batch_size": []})
    fields = edited(**{"entity-0-threads_per_instance": "2"})
    client = browser(cast.manager)

    summary = unescape(page_of(client.post("/endpoints/detector/edit/summary/", fields)))
    client.post("/endpoints/detector/edit/", fields)

    assert '"batching": {\n        "threads_per_instance": 2\n      }' in summary
    changed = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", summary))
    assert "Batching max_batch_size 8 automatic" in changed
    assert "Batching preferred_batch_size none automatic" in changed
    assert "Batching threads_per_instance automatic 2" in changed
    endpoint.refresh_from_db()
    assert endpoint.pending_config is not None
    assert endpoint.pending_config.entities.get().batching == {"threads_per_instance": 2}


def test_the_name_cannot_be_changed(cast: Cast, endpoint: Endpoint) -> None:
    browser(cast.manager).post("/endpoints/detector/edit/", edited(**{"name": "other"}))

    assert Endpoint.objects.get().name == "detector"


def test_while_an_update_runs_edit_says_so_and_saving_is_refused_with_the_reason(
    cast: Cast, endpoint: Endpoint
) -> None:
    DeploymentFactory(config=EndpointConfigFactory(endpoint=endpoint, version=2), running=True)
    Endpoint.objects.update(config_update=ConfigUpdate.IN_PROGRESS)
    client = browser(cast.manager)

    opened = page_of(client.get("/endpoints/detector/edit/"))
    saved = client.post("/endpoints/detector/edit/", without_checkbox())

    assert "Only one update runs at a time" in opened
    assert "Cancel update" in opened
    assert saved.status_code == 400
    assert "is being updated" in page_of(saved)


def test_the_switch_goes_off_by_itself_where_the_rules_stopped_passing(
    cast: Cast, endpoint: Endpoint
) -> None:
    set_enabled("throughput_optimized", False, cast.admin.user)
    client = browser(cast.manager)

    opened = page_of(client.get("/endpoints/detector/edit/"))
    client.post("/endpoints/detector/edit/", without_checkbox())

    assert CHECKBOX not in opened
    assert '<del class="break">on</del> <ins class="break">off</ins>' in opened
    endpoint.refresh_from_db()
    assert endpoint.pending_config is not None
    assert not endpoint.pending_config.entities.get().throughput_optimized
