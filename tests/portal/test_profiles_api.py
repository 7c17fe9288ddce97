"""What the API says of the batching in force and of the measurements it comes from."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from portal.endpoints.models import Profile
from tests.support.factories import Cast, live_endpoint, make_cast

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

ONE = "/api/2.0/serving-endpoints/detector"
PROFILE = f"{ONE}/served-models/main/profile"


@pytest.fixture
def cast() -> Cast:
    return make_cast()


def call(cast: Cast, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    client = Client(headers=cast.manager.headers)
    answer = client.generic(method, path, "{}" if method == "POST" else "", "application/json")
    return answer.status_code, answer.json()


def test_each_setting_in_force_says_where_it_comes_from_and_why(cast: Cast) -> None:
    live_endpoint(endpoint_name="detector", creator=cast.manager.user)

    _, answer = call(cast, ONE)

    entity = answer["config"]["served_entities"][0]
    assert entity["batching"] == {}
    assert entity["batching_in_force"]["max_batch_size"] == {
        "value": 32,
        "source": "profile",
        "reason": "32 rows in a call gave 3,810 rows/s, 94% of the best.",
    }
    assert entity["batching_in_force"]["max_queue_size"]["source"] == "override"


def test_the_profile_holds_curve_trials_and_choice(cast: Cast) -> None:
    live_endpoint(endpoint_name="detector", creator=cast.manager.user)

    status, answer = call(cast, PROFILE)

    assert status == 200
    assert [step["rows"] for step in answer["steps"]] == [1, 2, 4, 8, 16, 32, 64]
    assert [trial["is_chosen"] for trial in answer["trials"]] == [False, True]
    assert answer["knee_rows"] == answer["chosen"]["max_batch_size"] == 32
    assert answer["measured_at"] == 1_700_000_000_000


def test_an_entity_on_the_standard_backend_has_neither(cast: Cast) -> None:
    live_endpoint(endpoint_name="detector", creator=cast.manager.user, throughput_optimized=False)

    _, endpoint = call(cast, ONE)
    status, answer = call(cast, PROFILE)

    assert endpoint["config"]["served_entities"][0]["batching_in_force"] == {}
    assert (status, answer["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")


def test_measuring_again_is_for_the_next_deployment_what_is_in_force_stays(cast: Cast) -> None:
    endpoint = live_endpoint(endpoint_name="detector", creator=cast.manager.user)

    first = call(cast, PROFILE, "POST")
    second = call(cast, PROFILE, "POST")

    assert first == second == (200, {})
    assert Profile.objects.get().is_outdated
    assert endpoint.events.filter(kind="profile_dropped").count() == 1
    assert call(cast, PROFILE)[0] == 200
