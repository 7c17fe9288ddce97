"""The Batching tab through Django's client."""

from __future__ import annotations

import html
import json
import re

import pytest

from portal.endpoints.models import BackendDecision, Endpoint, Profile, Replica
from portal.endpoints.states import ConfigUpdate, StepName, StepState
from serving.spec import to_json
from serving.tuning.policy import Progress, Sweep
from serving.tuning.profile import SweepStep
from tests.support.batching import tell_batching
from tests.support.endpoint_form import browser
from tests.support.factories import (
    BackendDecisionFactory,
    Cast,
    DeploymentFactory,
    EndpointConfigFactory,
    Person,
    ServedEntityFactory,
    live_endpoint,
    make_cast,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

TAB = "/endpoints/detector/batching/"


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def endpoint(cast: Cast) -> Endpoint:
    return cast.share(live_endpoint(endpoint_name="detector", name="main"))


def words(person: Person, path: str = TAB) -> str:
    """The page's text, on one line."""
    answer = browser(person).get(path)
    assert answer.status_code == 200
    text = re.sub(r"<[^>]+>", " ", answer.content.decode())
    return re.sub(r"\s+", " ", html.unescape(text))


def test_it_reads_what_was_batched_and_draws_it(cast: Cast, endpoint: Endpoint) -> None:
    tell_batching(Replica.objects.get(), {1: 60, 8: 540}, queue_ms=4.0, compute_ms=6.0)

    page = browser(cast.viewer).get(TAB).content.decode()

    assert "Mean batch 7.3 of 32 at 73 rows/s: batching carries the load" in page
    figures = [
        json.loads(html.unescape(found)) for found in re.findall(r'data-figure="([^"]*)"', page)
    ]
    assert figures[0]["data"][0]["y"] == [60, 540]
    assert "the gateway joins small concurrent requests" in page
    assert "plotly-basic.min.js" in page


def test_each_value_in_force_says_where_it_came_from_and_why(
    cast: Cast, endpoint: Endpoint
) -> None:
    page = words(cast.viewer)

    assert (
        "Largest batch (rows) max_batch_size 32 Profile 32 rows in a call gave 3,810 rows/s" in page
    )
    assert "Queue size (requests) max_queue_size 256 Override Set on the served entity." in page


def test_the_measurements_are_shown_with_what_was_chosen(cast: Cast, endpoint: Endpoint) -> None:
    page = words(cast.viewer)

    assert "2023-11-14 22:13:20 UTC on CPU emulation, 2 cores, in 21.5 s" in page
    assert "8 rows in one call were answered as each alone." in page
    assert "8 rows in one call took 1.2 times as long as 1." in page
    assert "64 rows are the most that was tried." in page
    assert "2 1 32 0 64 4,740 13.0 26.0 Chosen" in page
    assert "32 (knee)" in page


def test_without_an_input_example_it_says_what_to_do(cast: Cast, endpoint: Endpoint) -> None:
    BackendDecision.objects.update(profile=None)

    assert "Not measured: the version has no input example" in words(cast.viewer)


def test_on_the_standard_backend_one_sentence_says_why(cast: Cast) -> None:
    cast.share(live_endpoint(endpoint_name="detector", throughput_optimized=False))

    page = words(cast.viewer)

    assert "Not batched: Throughput optimized is off" in page
    assert "In force" not in page


def test_while_it_is_measured_the_page_shows_what_is_known(cast: Cast, endpoint: Endpoint) -> None:
    config = EndpointConfigFactory(endpoint=endpoint, version=2)
    deployment = DeploymentFactory(config=config, running=True)
    deployment.steps.filter(name=StepName.PROFILE).update(
        state=StepState.RUNNING, message="main: measuring 4 rows a call."
    )
    steps = (SweepStep(rows=2, runs=9, latency_ms=4.0, rows_per_s=500.0),)
    progress = Progress(
        started_at=1.0, load_s=2.0, sweep=Sweep(steps=steps, stopped_because="", row_bytes=8)
    )
    BackendDecisionFactory(
        deployment=deployment,
        entity=ServedEntityFactory(config=config, optimized=True),
        profiling={"progress": json.loads(to_json(progress))},
    )
    Endpoint.objects.update(config_update=ConfigUpdate.IN_PROGRESS, pending_config=config)

    page = words(cast.viewer, f"{TAB}status/")

    assert "main: measuring 4 rows a call." in page
    assert "2 500 4.00 9" in page


def test_managers_let_the_next_deployment_measure_again(cast: Cast, endpoint: Endpoint) -> None:
    client = browser(cast.manager)
    assert "Measure again with the next deployment" in words(cast.manager)
    assert "up to a minute" in client.get(f"{TAB}measure/?entity=main").content.decode()

    for _ in range(2):
        answer = client.post(f"{TAB}measure/", {"entity": "main"})
        assert answer["Location"] == TAB

    assert Profile.objects.get().is_outdated
    page = words(cast.manager)
    assert "It is measured again with the next deployment." in page
    assert "Measure again" not in page


def test_others_do_not(cast: Cast, endpoint: Endpoint) -> None:
    assert "Measure again" not in words(cast.querier)
    assert browser(cast.querier).post(f"{TAB}measure/", {"entity": "main"}).status_code == 403
    assert browser(cast.stranger).post(f"{TAB}measure/", {"entity": "main"}).status_code == 404
    assert browser(cast.manager).post(f"{TAB}measure/", {"entity": "no"}).status_code == 404
    assert browser(cast.manager).put(f"{TAB}measure/").status_code == 405
    assert browser(cast.stranger).get(TAB).status_code == 404
    assert not Profile.objects.get().is_outdated
