"""What is asked for is checked against every rule, and every problem names its field."""

from __future__ import annotations

from typing import Any

import pytest

from portal.endpoints import services
from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.models import Endpoint, EndpointConfig, ServedEntity
from portal.previews.services import set_enabled
from portal.registry.models import ModelVersion
from portal.rest import (
    ApiError,
    FeatureDisabled,
    InvalidParameterValue,
    PermissionDenied,
    ResourceAlreadyExists,
    ResourceConflict,
)
from tests.support.factories import (
    ModelAliasFactory,
    ModelVersionFactory,
    UserFactory,
    live_endpoint,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture
def version() -> ModelVersion:
    return ModelVersionFactory(staged=True, model__name="main.default.detector")


@pytest.fixture
def preview() -> None:
    set_enabled("throughput_optimized", True, None)


def entity(version: ModelVersion, **fields: Any) -> EntityInput:
    return EntityInput(
        **{"entity_name": version.model.name, "entity_version": str(version.version), **fields}
    )


def create(*entities: EntityInput, name: str = "detector", **fields: Any) -> Endpoint:
    return services.create_endpoint(
        UserFactory(), EndpointInput(name=name, entities=entities, **fields)
    )


def active(endpoint: Endpoint) -> ServedEntity:
    assert endpoint.active_config is not None
    return endpoint.active_config.entities.get()


def pending(endpoint: Endpoint) -> ServedEntity:
    assert endpoint.pending_config is not None
    return endpoint.pending_config.entities.get()


def version_of(endpoint: Endpoint) -> ModelVersion:
    found = active(endpoint).model_version
    assert found is not None
    return found


def problems_of(error: ApiError) -> dict[str, str]:
    return {problem["field"]: problem["message"] for problem in error.details}


def refused(*entities: EntityInput, **fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidParameterValue) as caught:
        create(*entities, **fields)
    return problems_of(caught.value)


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 63])
def test_a_good_name_is_taken(version: ModelVersion, name: str) -> None:
    assert create(entity(version), name=name).name == name


@pytest.mark.parametrize(
    "name", ["", "x" * 64, "not a name!", "käfer", "a/b", "databricks-x", "a\n"]
)
def test_a_bad_name_is_refused_at_its_field(version: ModelVersion, name: str) -> None:
    assert list(refused(entity(version), name=name)) == ["name"]


def test_a_taken_name_is_a_conflict(version: ModelVersion) -> None:
    create(entity(version))

    with pytest.raises(ResourceAlreadyExists):
        create(entity(version))


def test_defaults_are_those_of_the_mirrored_product(version: ModelVersion) -> None:
    endpoint = create(entity(version))

    served = pending(endpoint)
    assert served.name == "detector-1"
    assert (served.workload_type, served.workload_size) == ("CPU", "Small")
    assert (served.min_provisioned_concurrency, served.max_provisioned_concurrency) == (4, 4)
    assert served.traffic_percentage == 100
    assert not served.throughput_optimized
    assert not served.scale_to_zero_enabled


def test_an_alias_becomes_the_version_that_it_points_to_now(version: ModelVersion) -> None:
    ModelAliasFactory(model_version=version, alias="champion")

    endpoint = create(entity(version, entity_version="@champion"))

    served = pending(endpoint)
    assert (served.entity_version, served.name) == ("1", "detector-1")


def test_all_problems_are_reported_at_once(version: ModelVersion) -> None:
    found = refused(
        entity(version, workload_type="TPU", workload_size="Huge", name="a b"),
        entity(version, entity_version="99", traffic_percentage=300),
        name="bad name",
    )

    assert set(found) == {
        "name",
        "config.served_entities[0].workload_type",
        "config.served_entities[0].workload_size",
        "config.served_entities[0].name",
        "config.served_entities[0].traffic_percentage",
        "config.served_entities[1].entity_version",
        "config.served_entities[1].traffic_percentage",
    }


def test_a_version_that_is_still_uploading_is_refused() -> None:
    uploading = ModelVersionFactory(uploading=True)

    assert "uploading" in refused(entity(uploading))["config.served_entities[0].entity_version"]


def test_an_endpoint_needs_between_1_and_15_entities(version: ModelVersion) -> None:
    many = [entity(version, name=f"e{n}", traffic_percentage=0) for n in range(16)]

    assert list(refused()) == ["config.served_entities"]
    assert list(refused(*many)) == ["config.served_entities"]


def test_names_of_entities_are_their_own(version: ModelVersion) -> None:
    found = refused(entity(version, traffic_percentage=50), entity(version, traffic_percentage=50))

    assert list(found) == ["config.served_entities[1].name"]


@pytest.mark.parametrize("shares", [(50, 60), (50, 40), (0, 0)])
def test_traffic_totals_100(version: ModelVersion, shares: tuple[int, int]) -> None:
    one, two = shares

    found = refused(
        entity(version, name="a", traffic_percentage=one),
        entity(version, name="b", traffic_percentage=two),
    )

    assert list(found) == ["config.traffic_config"]


@pytest.mark.parametrize(
    ("least", "most", "field"),
    [
        (6, 8, "min_provisioned_concurrency"),
        (4, 9, "max_provisioned_concurrency"),
        (8, 4, "max_provisioned_concurrency"),
        (0, 4, "min_provisioned_concurrency"),
        (-4, 4, "min_provisioned_concurrency"),
        (4, 2048, "max_provisioned_concurrency"),
    ],
)
def test_custom_concurrency_is_a_range_of_multiples_of_4(
    version: ModelVersion, least: int, most: int, field: str
) -> None:
    wanted = entity(version, min_provisioned_concurrency=least, max_provisioned_concurrency=most)

    assert list(refused(wanted)) == [f"config.served_entities[0].{field}"]


def test_a_size_and_numbers_exclude_each_other(version: ModelVersion) -> None:
    wanted = entity(version, workload_size="Small", min_provisioned_concurrency=4)

    assert list(refused(wanted)) == ["config.served_entities[0].workload_size"]


def test_custom_concurrency_may_start_at_0_when_it_scales_to_zero(version: ModelVersion) -> None:
    endpoint = create(
        entity(
            version,
            min_provisioned_concurrency=0,
            max_provisioned_concurrency=8,
            scale_to_zero_enabled=True,
        )
    )

    served = pending(endpoint)
    assert (served.workload_size, served.min_provisioned_concurrency) == ("", 0)


@pytest.mark.parametrize(
    "variables",
    [
        {"1A": "x"},
        {"A B": "x"},
        {"": "x"},
        {f"V{n}": "" for n in range(51)},
        {"A": "{{secrets/no/such}}"},
        {"A": "x" * 40_000},
    ],
)
def test_environment_variables_are_checked(
    version: ModelVersion, variables: dict[str, str]
) -> None:
    found = refused(entity(version, environment_vars=variables))

    assert list(found) == ["config.served_entities[0].environment_vars"]


@pytest.mark.parametrize(
    ("batching", "field"),
    [
        ({"max_batch_size": 0}, "max_batch_size"),
        ({"max_batch_size": 5000}, "max_batch_size"),
        ({"max_batch_size": True}, "max_batch_size"),
        ({"max_batch_size": "8"}, "max_batch_size"),
        ({"max_queue_delay_microseconds": -1}, "max_queue_delay_microseconds"),
        ({"instance_count": 17}, "instance_count"),
        ({"preferred_batch_size": [4, 64], "max_batch_size": 32}, "preferred_batch_size"),
        ({"preferred_batch_size": 4}, "preferred_batch_size"),
        ({"turbo": 1}, "turbo"),
    ],
)
def test_batching_overrides_are_typed_and_bounded(
    version: ModelVersion, batching: dict[str, object], field: str
) -> None:
    found = refused(entity(version, batching=batching))

    assert list(found) == [f"config.served_entities[0].batching.{field}"]


# ---------------------------------------------------------------- the switch


@pytest.mark.usefixtures("preview")
def test_the_switch_is_kept_where_every_rule_passes(version: ModelVersion) -> None:
    endpoint = create(entity(version, workload_type="GPU_SMALL", throughput_optimized=True))

    assert pending(endpoint).throughput_optimized


@pytest.mark.usefixtures("preview")
def test_the_switch_is_refused_with_the_rule_and_its_cure(version: ModelVersion) -> None:
    found = refused(entity(version, throughput_optimized=True))

    message = found["config.served_entities[0].throughput_optimized"]
    assert "GPU workload type" in message
    assert "Choose a GPU workload type" in message


def test_the_switch_is_403_only_when_nothing_but_the_preview_is_in_the_way(
    version: ModelVersion,
) -> None:
    with pytest.raises(FeatureDisabled) as caught:
        create(entity(version, workload_type="GPU_SMALL", throughput_optimized=True))

    assert "Previews" in caught.value.message
    assert refused(entity(version, workload_type="CPU", throughput_optimized=True))


@pytest.mark.usefixtures("preview")
@pytest.mark.parametrize("traits", [{"staging": True}, {"packed": True}])
def test_the_switch_is_never_refused_because_staging_still_runs(traits: dict[str, bool]) -> None:
    staging = ModelVersionFactory(**traits)

    endpoint = create(entity(staging, workload_type="GPU_SMALL", throughput_optimized=True))

    assert pending(endpoint).throughput_optimized


def update(endpoint: Endpoint, *entities: EntityInput) -> EndpointConfig:
    return services.update_config(endpoint.creator, endpoint, entities)


@pytest.mark.usefixtures("preview")
@pytest.mark.parametrize("said", [None, True, False])
@pytest.mark.parametrize("name", ["main", "another"])
def test_on_update_the_switch_not_said_stays_as_it_was(said: bool | None, name: str) -> None:
    endpoint = live_endpoint()
    version = version_of(endpoint)

    config = update(
        endpoint,
        entity(version, name=name, workload_type="GPU_SMALL", throughput_optimized=said),
    )

    assert config.entities.get().throughput_optimized is (said is not False)


def test_a_switch_that_stays_is_not_refused_when_the_preview_is_off_meanwhile() -> None:
    endpoint = live_endpoint()
    version = version_of(endpoint)

    config = update(endpoint, entity(version, name="main", workload_type="GPU_SMALL"))

    assert config.entities.get().throughput_optimized


def test_another_model_under_another_name_does_not_inherit_the_switch(
    version: ModelVersion,
) -> None:
    endpoint = live_endpoint()

    config = update(endpoint, entity(version, name="other", workload_type="GPU_SMALL"))

    assert not config.entities.get().throughput_optimized


def test_on_update_batching_not_said_stays_and_the_rest_becomes_the_default() -> None:
    endpoint = live_endpoint(
        throughput_optimized=False, batching={"max_batch_size": 8}, environment_vars={"A": "1"}
    )
    version = version_of(endpoint)

    served = update(endpoint, entity(version, name="main")).entities.get()

    assert served.batching == {"max_batch_size": 8}
    assert served.environment_vars == {}


# ---------------------------------------------------------------- updates


def test_only_one_update_at_a_time() -> None:
    endpoint = live_endpoint()
    version = version_of(endpoint)
    update(endpoint, entity(version))

    with pytest.raises(ResourceConflict):
        update(endpoint, entity(version))

    assert endpoint.configs.count() == 2


def test_config_versions_grow_and_the_active_config_stays() -> None:
    endpoint = live_endpoint()
    version = version_of(endpoint)

    config = update(endpoint, entity(version))

    endpoint.refresh_from_db()
    assert config.version == 2
    assert (active(endpoint).config.version, pending(endpoint).config.version) == (1, 2)
    assert endpoint.config_update == "IN_PROGRESS"
    assert endpoint.ready == "READY"


def test_the_recorded_creator_is_checked_again_on_each_update() -> None:
    manager = UserFactory(groups=["admins"])
    endpoint = live_endpoint()
    version = version_of(endpoint)
    endpoint.creator.is_active = False
    endpoint.creator.save()

    with pytest.raises(PermissionDenied, match="creator"):
        services.update_config(manager, endpoint, [entity(version)])


# ---------------------------------------------------------------- life


def test_cancelling_keeps_what_serves() -> None:
    endpoint = live_endpoint()
    version = version_of(endpoint)
    update(endpoint, entity(version))

    services.cancel_update(endpoint.creator, endpoint)

    endpoint.refresh_from_db()
    assert (endpoint.ready, endpoint.config_update) == ("READY", "UPDATE_CANCELED")
    assert active(endpoint).config.version == 1
    assert pending(endpoint).state == "DEPLOYMENT_ABORTED"
    assert update(endpoint, entity(version)).version == 3


def test_cancelling_without_an_update_is_refused() -> None:
    endpoint = live_endpoint()

    with pytest.raises(ApiError, match="not being updated"):
        services.cancel_update(endpoint.creator, endpoint)


def test_a_stopped_endpoint_starts_as_a_new_config_with_the_same_properties() -> None:
    endpoint = live_endpoint(environment_vars={"A": "1"})

    services.stop_endpoint(endpoint.creator, endpoint)
    endpoint.refresh_from_db()
    assert (endpoint.ready, endpoint.is_stopped) == ("NOT_READY", True)
    services.start_endpoint(endpoint.creator, endpoint)

    endpoint.refresh_from_db()
    served = pending(endpoint)
    assert (served.config.version, served.environment_vars) == (2, {"A": "1"})
    assert served.throughput_optimized


def test_a_stopped_endpoint_is_not_stopped_updated_or_retried() -> None:
    endpoint = live_endpoint()
    version = version_of(endpoint)
    services.stop_endpoint(endpoint.creator, endpoint)

    for act in (
        lambda: services.stop_endpoint(endpoint.creator, endpoint),
        lambda: update(endpoint, entity(version)),
        lambda: services.retry_deployment(endpoint.creator, endpoint),
    ):
        with pytest.raises(ApiError, match="stopped"):
            act()


def test_a_deleted_name_is_free_at_once(version: ModelVersion) -> None:
    endpoint = create(entity(version))

    services.delete_endpoint(endpoint.creator, endpoint)

    assert create(entity(version)).name == "detector"
    assert endpoint.deployments.get().state == "CANCELED"


def test_retrying_deploys_the_failed_config_again() -> None:
    endpoint = live_endpoint()
    version = version_of(endpoint)
    update(endpoint, entity(version))
    services.cancel_update(endpoint.creator, endpoint)
    endpoint.refresh_from_db()

    deployment = services.retry_deployment(endpoint.creator, endpoint)

    assert deployment.config.version == 2
    assert deployment.config.entities.get().state == "DEPLOYMENT_CREATING"


def test_every_change_is_on_the_time_line() -> None:
    endpoint = live_endpoint()
    version = version_of(endpoint)

    update(endpoint, entity(version))
    services.cancel_update(endpoint.creator, endpoint)

    kinds = list(endpoint.events.values_list("kind", flat=True))
    assert {"config_changed", "deployment_queued", "deployment_canceled", "entity_aborted"} <= set(
        kinds
    )
