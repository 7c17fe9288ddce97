"""The endpoint pages through Django's client: who sees what, what is shown, what buttons do."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import DjangoAssertNumQueries

from portal.endpoints.models import Endpoint, Event, Replica
from portal.endpoints.states import ConfigUpdate, DeploymentState, Ready, StepName, StepState
from tests.support.factories import (
    Cast,
    DeploymentFactory,
    EndpointConfigFactory,
    EndpointFactory,
    Person,
    ServedEntityFactory,
    live_endpoint,
    make_cast,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

PAGES = ("", "events/", "query/", "settings/")


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def endpoint(cast: Cast) -> Endpoint:
    return cast.share(live_endpoint(endpoint_name="detector"))


def browser(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def failed_endpoint(cast: Cast, name: str = "broken") -> Endpoint:
    """An endpoint whose first deployment failed."""
    endpoint: Endpoint = EndpointFactory(
        name=name,
        creator=cast.manager.user,
        config_update=ConfigUpdate.UPDATE_FAILED,
        config_update_message="No module named 'transformers'.",
        last_config_version=1,
    )
    config = EndpointConfigFactory(endpoint=endpoint)
    ServedEntityFactory(config=config, optimized=True, state="DEPLOYMENT_FAILED")
    deployment = DeploymentFactory(
        config=config,
        state=DeploymentState.FAILED,
        started_at=timezone.now(),
        ended_at=timezone.now(),
        failed_step=StepName.LOAD,
        message="No module named 'transformers'.",
        log_excerpt="Traceback (most recent call last):\nModuleNotFoundError",
    )
    deployment.steps.filter(name=StepName.LOAD).update(state=StepState.FAILED)
    endpoint.pending_config = config
    endpoint.save()
    return endpoint


# ---------------------------------------------------------------- who sees what


def test_pages_ask_people_to_log_in(endpoint: Endpoint) -> None:
    for url in ("/", "/endpoints/new/", f"/endpoints/{endpoint.name}/"):
        answer = Client().get(url)

        assert answer.status_code == 302
        assert answer["Location"].startswith("/login/")


@pytest.mark.parametrize("tab", PAGES)
def test_a_viewer_sees_every_tab(cast: Cast, endpoint: Endpoint, tab: str) -> None:
    assert browser(cast.viewer).get(f"/endpoints/{endpoint.name}/{tab}").status_code == 200


@pytest.mark.parametrize("tab", [*PAGES, "status/", "edit/", "delete/", "stop/"])
def test_a_stranger_gets_404_everywhere(cast: Cast, endpoint: Endpoint, tab: str) -> None:
    assert browser(cast.stranger).get(f"/endpoints/{endpoint.name}/{tab}").status_code == 404


@pytest.mark.parametrize("person", ["viewer", "querier"])
@pytest.mark.parametrize("action", ["edit/", "delete/", "stop/", "start/", "retry/", "cancel/"])
def test_who_may_not_manage_is_refused(
    cast: Cast, endpoint: Endpoint, person: str, action: str
) -> None:
    client = browser(getattr(cast, person))

    answer = client.post(f"/endpoints/{endpoint.name}/{action}", {"confirm": endpoint.name})

    assert answer.status_code == 403
    assert Endpoint.objects.get().name == endpoint.name


@pytest.mark.parametrize("action", ["start/", "retry/", "cancel/"])
def test_actions_are_posts(cast: Cast, endpoint: Endpoint, action: str) -> None:
    assert browser(cast.manager).get(f"/endpoints/{endpoint.name}/{action}").status_code == 405


def test_a_form_of_another_site_is_refused(cast: Cast, endpoint: Endpoint) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.manager.user)

    answer = client.post(f"/endpoints/{endpoint.name}/delete/", {"confirm": endpoint.name})

    assert answer.status_code == 403


def test_a_viewer_is_shown_no_button_that_would_be_refused(cast: Cast, endpoint: Endpoint) -> None:
    page = browser(cast.viewer).get(f"/endpoints/{endpoint.name}/settings/").content.decode()

    assert "Danger zone" not in page
    assert f"/endpoints/{endpoint.name}/edit/" not in page


# ---------------------------------------------------------------- the list


def test_the_list_shows_what_is_visible_and_the_badge_from_evidence(
    cast: Cast, endpoint: Endpoint
) -> None:
    live_endpoint(endpoint_name="unshared")

    page = browser(cast.viewer).get("/").content.decode()

    assert "detector" in page
    assert "unshared" not in page
    assert "Triton active" in page
    assert "1 of 1" in page


def test_the_badge_goes_with_the_evidence(cast: Cast, endpoint: Endpoint) -> None:
    Replica.objects.update(evidence=[])

    page = browser(cast.viewer).get("/").content.decode()

    assert "Triton active" not in page
    assert "Triton not proven" in page


def test_bad_states_stand_first(cast: Cast, endpoint: Endpoint) -> None:
    failed_endpoint(cast, "zzz-broken")

    page = browser(cast.admin).get("/").content.decode()

    assert page.index("zzz-broken") < page.index("detector")
    assert 'data-page-state="bad"' in page


def test_the_list_is_sorted_and_filtered_by_the_url(cast: Cast, endpoint: Endpoint) -> None:
    failed_endpoint(cast)
    client = browser(cast.manager)

    def names(query: str) -> list[str]:
        rows = client.get(f"/{query}").context["rows"]
        return [row.endpoint.name for row in rows]

    assert names("?sort=-name") == ["detector", "broken"]
    assert names("?state=ready") == ["detector"]
    assert names("?state=failed") == ["broken"]
    assert names("?workload=GPU_SMALL&sort=name") == ["broken", "detector"]
    assert names("?workload=CPU") == []
    assert names("?mine=1") == ["broken"]
    assert names("?q=tect") == ["detector"]
    assert names("?state=nonsense&sort=nonsense") == ["broken", "detector"]


def test_filters_that_match_nothing_are_said_in_words(cast: Cast, endpoint: Endpoint) -> None:
    page = browser(cast.manager).get("/?state=stopped&q=xyz").content.decode()

    assert "No endpoint matches" in page
    assert "state stopped, “xyz” in the name or model" in page
    assert "Clear filters" in page


def test_the_empty_list_says_how_to_begin(cast: Cast) -> None:
    page = browser(cast.stranger).get("/").content.decode()

    assert "No endpoints yet" in page
    assert "curl -X POST" in page
    assert "$DATABRICKS_TOKEN" in page


def test_the_list_takes_as_many_queries_for_many_endpoints_as_for_one(
    cast: Cast, endpoint: Endpoint, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = browser(cast.admin)
    client.get("/")
    for _ in range(5):
        live_endpoint()

    with django_assert_num_queries(10):
        client.get("/")


def test_the_live_table_answers_nothing_when_nothing_changed(
    cast: Cast, endpoint: Endpoint
) -> None:
    client = browser(cast.viewer)
    first = client.get("/endpoints/", headers={"HX-Request": "true"})
    seen = first.content.decode().split("seen=")[1].split('"')[0]

    again = client.get(f"/endpoints/?seen={seen}", headers={"HX-Request": "true"})
    Endpoint.objects.update(ready=Ready.NOT_READY)
    after = client.get(f"/endpoints/?seen={seen}", headers={"HX-Request": "true"})

    assert (first.status_code, again.status_code, after.status_code) == (200, 204, 200)


def test_the_live_table_is_looked_at_more_often_while_something_moves(
    cast: Cast, endpoint: Endpoint
) -> None:
    client = browser(cast.viewer)
    assert 'hx-trigger="every 30s"' in client.get("/").content.decode()

    Endpoint.objects.update(config_update=ConfigUpdate.IN_PROGRESS)

    assert 'hx-trigger="every 3s"' in client.get("/").content.decode()


# ---------------------------------------------------------------- the overview


def test_each_piece_of_evidence_links_to_its_log_line(cast: Cast, endpoint: Endpoint) -> None:
    replica = Replica.objects.get()

    page = browser(cast.viewer).get(f"/endpoints/{endpoint.name}/").content.decode()

    assert "Triton active" in page
    for fact in replica.evidence:
        url = f"/endpoints/detector/logs/?replica={replica.public_id}&amp;line={fact['line']}"
        assert url in page
    assert "CPU emulation" in page


def test_a_failure_names_the_step_the_error_and_the_last_log_lines(cast: Cast) -> None:
    failed_endpoint(cast)

    page = browser(cast.manager).get("/endpoints/broken/").content.decode()

    assert "Failed at “Start the server and load the model”" in page
    assert "No module named &#x27;transformers&#x27;." in page
    assert "Traceback (most recent call last):" in page
    assert "Retry" in page
    assert "every " not in page.split('id="endpoint-status"')[1].split(">")[0]  # settled: no polls


def test_a_failure_of_an_update_says_what_goes_on_serving(cast: Cast, endpoint: Endpoint) -> None:
    config = EndpointConfigFactory(endpoint=endpoint, version=2)
    ServedEntityFactory(config=config, state="DEPLOYMENT_FAILED")
    DeploymentFactory(config=config, state=DeploymentState.FAILED, ended_at=timezone.now())
    Endpoint.objects.update(pending_config=config, config_update=ConfigUpdate.UPDATE_FAILED)

    page = browser(cast.viewer).get("/endpoints/detector/").content.decode()

    assert "Config version 1 goes on serving." in page
    assert "Configuration that failed" in page
    assert "Retry" not in page  # a viewer may not


def test_a_running_deployment_shows_its_steps_and_can_be_canceled(
    cast: Cast, endpoint: Endpoint
) -> None:
    config = EndpointConfigFactory(endpoint=endpoint, version=2)
    ServedEntityFactory(config=config)
    deployment = DeploymentFactory(config=config, running=True)
    deployment.steps.filter(name=StepName.LOAD).update(
        state=StepState.RUNNING, started_at=timezone.now(), message="Triton imports the model."
    )
    Endpoint.objects.update(pending_config=config, config_update=ConfigUpdate.IN_PROGRESS)
    client = browser(cast.manager)

    page = client.get("/endpoints/detector/").content.decode()
    client.post("/endpoints/detector/cancel/")

    assert "Deploying config version 2" in page
    assert "Triton imports the model." in page
    assert 'hx-trigger="every 3s"' in page
    assert Endpoint.objects.get().config_update == ConfigUpdate.UPDATE_CANCELED


def test_the_live_part_brings_the_head_of_the_page_along(cast: Cast, endpoint: Endpoint) -> None:
    page = browser(cast.viewer).get("/endpoints/detector/status/").content.decode()

    assert 'id="endpoint-head" hx-swap-oob="true"' in page
    assert 'data-announce="detector: Ready, Triton active."' in page


# ---------------------------------------------------------------- events, settings, danger


def test_events_are_filtered_and_linked(cast: Cast, endpoint: Endpoint) -> None:
    for number in range(60):
        Event.objects.create(endpoint=endpoint, kind="config_changed", message=f"number {number}.")
    old = Event.objects.create(endpoint=endpoint, kind="endpoint_stopped", message="stopped it.")
    first = Event.objects.order_by("pk").first()
    assert first is not None
    client = browser(cast.viewer)

    def messages(query: str) -> list[str]:
        return [
            e.message for e in client.get(f"/endpoints/detector/events/{query}").context["page"]
        ]

    assert messages("?kind=endpoint_stopped") == [old.message]
    assert messages("?q=number+59") == ["number 59."]
    assert first.message in messages(f"?event={first.pk}")
    assert first.message not in messages("")


def test_settings_show_the_config_as_the_body_that_creates_it(
    cast: Cast, endpoint: Endpoint
) -> None:
    page = browser(cast.viewer).get("/endpoints/detector/settings/").content.decode()

    assert "&quot;throughput_optimized&quot;: true" in page
    assert endpoint.public_id in page
    assert "querier" in page


def test_an_endpoint_that_answers_is_deleted_only_by_its_name(
    cast: Cast, endpoint: Endpoint
) -> None:
    client = browser(cast.manager)

    refused = client.post("/endpoints/detector/delete/", {"confirm": "detect"})
    still_there = Endpoint.objects.existing().filter(name="detector").exists()
    done = client.post("/endpoints/detector/delete/", {"confirm": "detector"})

    assert refused.status_code == 400
    assert "Type detector to confirm." in refused.content.decode()
    assert still_there
    assert done["Location"] == "/"
    assert not Endpoint.objects.existing().exists()
    assert client.get("/endpoints/detector/").status_code == 404


def test_an_endpoint_that_does_not_answer_is_deleted_without_its_name(cast: Cast) -> None:
    failed_endpoint(cast)

    browser(cast.manager).post("/endpoints/broken/delete/")

    assert not Endpoint.objects.existing().exists()


def test_stop_and_start(cast: Cast, endpoint: Endpoint) -> None:
    client = browser(cast.manager)

    client.post("/endpoints/detector/stop/")
    stopped = client.get("/endpoints/detector/").content.decode()
    client.post("/endpoints/detector/start/")

    assert "It was stopped; start it to query it." in stopped
    assert Endpoint.objects.get().config_update == ConfigUpdate.IN_PROGRESS


def test_what_cannot_be_done_is_said(cast: Cast, endpoint: Endpoint) -> None:
    answer = browser(cast.manager).post("/endpoints/detector/cancel/", follow=True)

    assert "is not being updated" in answer.content.decode()
