"""The endpoints API: shapes, permissions, errors; the real SDK against a live server."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from databricks.sdk import WorkspaceClient
from databricks.sdk import errors as sdk_errors
from databricks.sdk.service import serving as sdk
from django.test import Client

from portal.endpoints.models import Endpoint, Replica
from portal.previews.services import set_enabled
from portal.registry.models import ModelVersion
from serving import bus
from serving.spec import Route, from_json
from tests.support.batching import tell_batching
from tests.support.factories import Cast, ModelVersionFactory, Person, live_endpoint, make_cast

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

BASE = "/api/2.0/serving-endpoints"


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def version() -> ModelVersion:
    return ModelVersionFactory(staged=True, model__name="main.default.detector")


def call(
    person: Person | None, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    sent = dict(headers) | (person.headers if person else {})
    raw = body if isinstance(body, (str, bytes)) else json.dumps(body or {})
    answer = Client().generic(method, path, raw, "application/json", headers=sent)
    is_json = answer["Content-Type"].startswith("application/json")
    return answer.status_code, answer.json() if is_json else answer.content.decode()


def entity(version: ModelVersion, **fields: Any) -> dict[str, Any]:
    return {"entity_name": version.model.name, "entity_version": str(version.version), **fields}


def created(cast: Cast, version: ModelVersion, **fields: Any) -> dict[str, Any]:
    body = {"name": "detector", "config": {"served_entities": [entity(version, **fields)]}}
    status, answer = call(cast.manager, "POST", BASE, body)
    assert status == 200, answer
    return dict(answer)


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize("slash", ["", "/"])
def test_creation_answers_at_once_with_a_whole_detailed_object(
    cast: Cast, version: ModelVersion, slash: str
) -> None:
    body = {
        "name": "detector",
        "description": "finds things",
        "tags": [{"key": "team", "value": "vision"}, {"key": "flag"}],
        "config": {
            "served_entities": [entity(version, name="main", environment_vars={"A": "1"})],
            "traffic_config": {
                "routes": [{"served_entity_name": "main", "traffic_percentage": 100}]
            },
        },
    }

    status, answer = call(cast.manager, "POST", BASE + slash, body)

    assert status == 200
    assert answer["name"] == "detector"
    assert answer["id"]
    assert answer["creator"] == "manager"
    assert answer["creation_timestamp"] > 1_500_000_000_000
    assert answer["state"]["ready"] == "NOT_READY"
    assert answer["state"]["config_update"] == "IN_PROGRESS"
    assert answer["permission_level"] == "CAN_MANAGE"
    assert answer["tags"] == [{"key": "flag", "value": ""}, {"key": "team", "value": "vision"}]
    assert answer["endpoint_url"] == "http://testserver/serving-endpoints/detector/invocations"
    assert "config" not in answer
    pending = answer["pending_config"]
    assert pending["config_version"] == 1
    assert pending["start_time"] > 1_500_000_000_000
    served = pending["served_entities"][0]
    assert served["environment_vars"] == {"A": "1"}
    assert served["throughput_optimized"] is False
    assert served["state"]["deployment"] == "DEPLOYMENT_CREATING"
    assert served["triton"]["status"] == "OFF"
    assert served["triton"]["reason_code"] == "NOT_REQUESTED"
    assert pending["served_models"][0]["model_name"] == "main.default.detector"
    assert pending["served_models"][0]["model_version"] == "1"
    assert pending["traffic_config"]["routes"] == [
        {"served_model_name": "main", "served_entity_name": "main", "traffic_percentage": 100}
    ]


def test_an_endpoint_with_triton_shows_its_evidence(cast: Cast) -> None:
    live_endpoint(creator=cast.manager.user, endpoint_name="live")

    _, answer = call(cast.manager, "GET", f"{BASE}/live")

    assert answer["state"]["ready"] == "READY"
    assert answer["state"]["config_update"] == "NOT_UPDATING"
    served = answer["config"]["served_entities"][0]
    assert served["throughput_optimized"] is True
    assert served["triton"]["status"] == "ACTIVE"
    assert {item["kind"] for item in served["triton"]["evidence"]} == {
        "SERVER_VERSION",
        "MODEL_LOADED",
        "MODEL_READY_ROW",
        "HTTP_SERVICE",
        "MODEL_READY",
    }
    assert served["triton"]["batching"] is None  # its replica has not said anything yet
    assert "pending_config" not in answer


def test_what_its_replicas_batched_is_told_in_figures_and_words(cast: Cast) -> None:
    live_endpoint(creator=cast.manager.user, endpoint_name="live")
    tell_batching(Replica.objects.get(), {1: 60, 16: 540}, queue_ms=4.0, compute_ms=6.0)

    _, answer = call(cast.manager, "GET", f"{BASE}/live")

    assert answer["config"]["served_entities"][0]["triton"]["batching"] == {
        "sentence": "Mean batch 14 of 32 at 145 rows/s: batching carries the load; queue 4 ms,"
        " compute 6 ms.",
        "window_s": 60.0,
        "rows": 8700,
        "batches": 600,
        "mean_rows": 14.5,
        "max_batch_size": 32,
        "rows_per_s": 145.0,
        "queue_ms": 4.0,
        "compute_ms": 6.0,
        "distribution": [{"rows": 1, "batches": 60}, {"rows": 16, "batches": 540}],
    }


def test_a_list_holds_summaries_of_what_the_caller_sees(cast: Cast, version: ModelVersion) -> None:
    created(cast, version)

    assert call(cast.stranger, "GET", BASE) == (200, {"endpoints": []})
    _, answer = call(cast.manager, "GET", BASE + "/")
    summary = answer["endpoints"][0]
    assert summary["name"] == "detector"
    assert summary["config"]["served_entities"][0]["entity_name"] == "main.default.detector"
    assert "permission_level" not in summary


def test_the_list_needs_a_fixed_number_of_queries(
    cast: Cast, django_assert_max_num_queries: Any
) -> None:
    for number in range(4):
        live_endpoint(creator=cast.manager.user, endpoint_name=f"e{number}")

    with django_assert_max_num_queries(14):
        call(cast.manager, "GET", BASE)


def test_traffic_of_the_older_names_is_read(cast: Cast, version: ModelVersion) -> None:
    body = {
        "name": "two",
        "config": {
            "served_models": [
                {"name": "a", "model_name": version.model.name, "model_version": "1"},
                {"name": "b", "model_name": version.model.name, "model_version": "1"},
            ],
            "traffic_config": {
                "routes": [
                    {"served_model_name": "a", "traffic_percentage": 80},
                    {"served_model_name": "b", "traffic_percentage": 20},
                ]
            },
        },
    }

    _, answer = call(cast.manager, "POST", BASE, body)

    routes = answer["pending_config"]["traffic_config"]["routes"]
    assert [route["traffic_percentage"] for route in routes] == [80, 20]


def test_an_update_answers_with_both_configs_and_refuses_a_second_one(cast: Cast) -> None:
    endpoint = live_endpoint(creator=cast.manager.user, endpoint_name="live")
    assert endpoint.active_config is not None
    served = entity(endpoint.active_config.entities.get().model_version, name="main")  # type: ignore[arg-type]  # it is there

    status, answer = call(cast.manager, "PUT", f"{BASE}/live/config", {"served_entities": [served]})

    assert status == 200
    assert answer["config"]["config_version"] == 1
    assert answer["pending_config"]["config_version"] == 2
    assert answer["pending_config"]["served_entities"][0]["throughput_optimized"] is True
    status, error = call(cast.manager, "PUT", f"{BASE}/live/config", {"served_entities": [served]})
    assert (status, error["error_code"]) == (409, "RESOURCE_CONFLICT")


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("value", ["yes", 1, [], {}])
def test_a_switch_that_is_no_boolean_is_400_and_null_is_absent(
    cast: Cast, version: ModelVersion, value: Any
) -> None:
    body = {
        "name": "x",
        "config": {"served_entities": [entity(version, throughput_optimized=value)]},
    }

    status, error = call(cast.manager, "POST", BASE, body)

    assert (status, error["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert error["details"][0]["field"] == "config.served_entities[0].throughput_optimized"
    assert created(cast, version, throughput_optimized=None)


def test_the_switch_with_the_preview_off_is_feature_disabled(
    cast: Cast, version: ModelVersion
) -> None:
    served = entity(version, throughput_optimized=True, workload_type="GPU_SMALL")
    body = {"name": "x", "config": {"served_entities": [served]}}

    status, error = call(cast.manager, "POST", BASE, body)
    assert (status, error["error_code"]) == (403, "FEATURE_DISABLED")
    assert "Previews page" in error["message"]

    set_enabled("throughput_optimized", True, None)
    assert call(cast.manager, "POST", BASE, body)[0] == 200


def one(**fields: Any) -> dict[str, Any]:
    return {"config": {"served_entities": [fields]}}


def route(**fields: Any) -> dict[str, Any]:
    return {"config": {"traffic_config": {"routes": [fields]}}}


FIRST = "config.served_entities[0]"
ROUTE = "config.traffic_config.routes[0]"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"config": []}, "config"),
        ({"name": 3}, "name"),
        ({"config": {"served_entities": {}}}, "config.served_entities"),
        ({"config": {"served_entities": ["x"]}}, FIRST),
        (one(entity_name=3), f"{FIRST}.entity_name"),
        (one(environment_vars={"A": 1}), f"{FIRST}.environment_vars"),
        (one(batching=3), f"{FIRST}.batching"),
        (one(min_provisioned_concurrency=True), f"{FIRST}.min_provisioned_concurrency"),
        (one(external_model={"name": "x"}), f"{FIRST}.external_model"),
        (route(), ROUTE),
        (route(served_entity_name="a", traffic_percentage=1.5), f"{ROUTE}.traffic_percentage"),
        ({"tags": [{"value": "x"}]}, "tags[0].key"),
    ],
)
def test_wrong_types_are_400_at_their_field(cast: Cast, body: Any, field: str) -> None:
    status, error = call(cast.manager, "POST", BASE, body)

    assert (status, error["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert field in [problem["field"] for problem in error["details"]]


@pytest.mark.parametrize("body", ["{", "[]", '"x"', b"\xff", '{"a": NaN}', "[" * 100_000])
def test_a_body_that_is_no_json_object_is_400(cast: Cast, body: Any) -> None:
    status, error = call(cast.manager, "POST", BASE, body)

    assert status == 400
    assert error["error_code"] == "MALFORMED_REQUEST"


def test_unknown_and_invisible_endpoints_are_the_same_404(
    cast: Cast, version: ModelVersion
) -> None:
    created(cast, version)

    for person, name in ((cast.manager, "nobody"), (cast.stranger, "detector")):
        status, error = call(person, "GET", f"{BASE}/{name}")
        assert (status, error["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")


def test_wrong_methods_and_missing_tokens_have_the_contracts_answers(cast: Cast) -> None:
    assert call(cast.manager, "POST", f"{BASE}/x/config")[0] == 404
    assert call(cast.manager, "DELETE", BASE)[0] == 404
    assert call(None, "GET", BASE)[0] == 401


# ---------------------------------------------------------------- permissions

READS = [
    "",
    "/events",
    "/metrics",
    "/openapi",
    "/served-models/main/logs",
    "/served-models/main/build-logs",
]
WRITES = [
    ("PUT", "/config"),
    ("PATCH", "/tags"),
    ("PATCH", "/notifications"),
    ("PUT", "/rate-limits"),
    ("PUT", "/ai-gateway"),
    ("POST", "/stop"),
    ("POST", "/start"),
    ("POST", "/cancel-update"),
    ("DELETE", ""),
]


@pytest.mark.parametrize("path", READS)
def test_who_may_see_an_endpoint_may_read_all_of_it(cast: Cast, path: str) -> None:
    cast.share(live_endpoint(endpoint_name="shared"))

    answers = {
        name: call(getattr(cast, name), "GET", f"{BASE}/shared{path}")[0]
        for name in ("admin", "manager", "querier", "viewer", "stranger")
    }

    assert answers == {"admin": 200, "manager": 200, "querier": 200, "viewer": 200, "stranger": 404}


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_only_managers_change_an_endpoint(cast: Cast, method: str, path: str) -> None:
    cast.share(live_endpoint(endpoint_name="shared"))

    for person, expected in ((cast.stranger, 404), (cast.viewer, 403), (cast.querier, 403)):
        status, error = call(person, method, f"{BASE}/shared{path}")
        assert status == expected, error
    assert call(cast.manager, method, f"{BASE}/shared{path}")[0] in {200, 400}


def test_permissions_are_put_patched_and_published(cast: Cast, valkey: redis.Redis) -> None:
    endpoint = cast.share(live_endpoint(endpoint_name="shared"))
    path = f"/api/2.0/permissions/serving-endpoints/{endpoint.public_id}"
    grant = {"group_name": "users", "permission_level": "CAN_QUERY"}

    status, answer = call(cast.admin, "PUT", path, {"access_control_list": [grant]})

    assert status == 200
    assert answer["object_id"] == f"/serving-endpoints/{endpoint.public_id}"
    levels = {
        acr.get("user_name") or acr["group_name"]: acr["all_permissions"]
        for acr in answer["access_control_list"]
    }
    assert levels["users"] == [{"permission_level": "CAN_QUERY", "inherited": False}]
    assert levels["admins"][0]["inherited"] is True
    assert levels[endpoint.creator.username][0]["permission_level"] == "CAN_MANAGE"
    assert "manager" not in levels
    assert call(cast.stranger, "GET", f"{BASE}/shared")[1]["permission_level"] == "CAN_QUERY"

    more = {"user_name": "viewer", "permission_level": "CAN_MANAGE"}
    assert call(cast.admin, "PATCH", path, {"access_control_list": [more]})[0] == 200
    assert call(cast.viewer, "PATCH", f"{BASE}/shared/tags")[0] == 200


def test_permissions_name_real_users_and_levels(cast: Cast) -> None:
    endpoint = live_endpoint(endpoint_name="shared")
    path = f"/api/2.0/permissions/serving-endpoints/{endpoint.public_id}"

    for grant in (
        {"user_name": "nobody", "permission_level": "CAN_VIEW"},
        {"group_name": "nobodies", "permission_level": "CAN_VIEW"},
        {"user_name": "viewer", "permission_level": "CAN_FLY"},
        {"user_name": "viewer", "group_name": "users", "permission_level": "CAN_VIEW"},
        {"permission_level": "CAN_VIEW"},
    ):
        status, error = call(cast.admin, "PUT", path, {"access_control_list": [grant]})
        assert (status, error["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


# ---------------------------------------------------------------- texts


def test_openapi_describes_the_input_from_the_signature(cast: Cast) -> None:
    endpoint = live_endpoint(endpoint_name="live")
    assert endpoint.active_config is not None
    version = endpoint.active_config.entities.get().model_version
    assert version is not None
    tensor = [{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 4]}}]
    version.signature = {"inputs": json.dumps(tensor), "outputs": None}
    version.input_example = {"inputs": [[1, 2, 3, 4]]}
    version.save()

    _, document = call(cast.admin, "GET", f"{BASE}/live/openapi", Accept="text/plain")

    operation = document["paths"]["/serving-endpoints/live/invocations"]["post"]
    media = operation["requestBody"]["content"]["application/json"]
    assert media["example"] == {"inputs": [[1, 2, 3, 4]]}
    inputs = media["schema"]["oneOf"][0]["properties"]["inputs"]
    assert inputs["items"] == {
        "type": "array",
        "items": {"type": "number"},
        "minItems": 4,
        "maxItems": 4,
    }


def test_logs_of_an_unknown_entity_are_404(cast: Cast) -> None:
    live_endpoint(endpoint_name="live")

    assert call(cast.admin, "GET", f"{BASE}/live/served-models/nobody/logs")[0] == 404


def test_events_are_answered_newest_first(cast: Cast, version: ModelVersion) -> None:
    created(cast, version)

    _, answer = call(cast.manager, "GET", f"{BASE}/detector/events?max_results=2")

    assert [event["type"] for event in answer["events"]] == [
        "DEPLOYMENT_QUEUED",
        "ENDPOINT_CREATED",
    ]
    assert call(cast.manager, "GET", f"{BASE}/detector/events?max_results=x")[0] == 400


# ---------------------------------------------------------------- the real client


@pytest.fixture
def workspace(live_server: Any) -> WorkspaceClient:
    return WorkspaceClient(host=live_server.url, token=make_cast().manager.token)


@pytest.mark.django_db(transaction=True)
def test_the_sdk_reads_and_writes_endpoints(
    workspace: WorkspaceClient, valkey: redis.Redis
) -> None:
    version = ModelVersionFactory(staged=True, model__name="main.default.detector")
    served = sdk.ServedEntityInput(
        name="main",
        entity_name=version.model.name,
        entity_version="1",
        workload_size="Small",
        scale_to_zero_enabled=False,
        workload_type=sdk.ServingModelWorkloadType.GPU_SMALL,
        environment_vars={"A": "1"},
    )
    api = workspace.serving_endpoints

    waiter = api.create(
        name="detector",
        config=sdk.EndpointCoreConfigInput(name="detector", served_entities=[served]),
        tags=[sdk.EndpointTag(key="team", value="vision")],
    )
    made: sdk.ServingEndpointDetailed = waiter.response
    assert made.state is not None
    assert made.state.config_update == sdk.EndpointStateConfigUpdate.IN_PROGRESS
    assert made.state.ready == sdk.EndpointStateReady.NOT_READY

    found = api.get("detector")
    assert found.permission_level == sdk.ServingEndpointDetailedPermissionLevel.CAN_MANAGE
    assert found.pending_config is not None
    assert found.pending_config.served_entities is not None
    entity = found.pending_config.served_entities[0]
    assert entity.workload_type == sdk.ServingModelWorkloadType.GPU_SMALL
    assert entity.state is not None
    assert entity.state.deployment == sdk.ServedModelStateDeployment.DEPLOYMENT_CREATING
    assert [endpoint.name for endpoint in api.list()] == ["detector"]

    with pytest.raises(sdk_errors.ResourceConflict):
        api.update_config("detector", served_entities=[served])
    with pytest.raises(sdk_errors.ResourceConflict):
        api.create(
            name="detector",
            config=sdk.EndpointCoreConfigInput(name="detector", served_entities=[served]),
        )
    with pytest.raises(sdk_errors.NotFound):
        api.get("nobody")
    with pytest.raises(sdk_errors.BadRequest):
        api.create(
            name="not a name!",
            config=sdk.EndpointCoreConfigInput(name="x", served_entities=[served]),
        )

    tags = api.patch("detector", add_tags=[sdk.EndpointTag(key="x")], delete_tags=["team"]).tags
    assert [tag.key for tag in tags or []] == ["x"]
    limit = sdk.AiGatewayRateLimit(
        calls=600,
        key=sdk.AiGatewayRateLimitKey.ENDPOINT,
        renewal_period=sdk.AiGatewayRateLimitRenewalPeriod.MINUTE,
    )
    api.put_ai_gateway("detector", rate_limits=[limit])
    gateway = api.get("detector").ai_gateway
    assert gateway is not None
    assert gateway.rate_limits is not None
    assert gateway.rate_limits[0].calls == 600
    api.put_ai_gateway("detector")
    assert not (api.get("detector").ai_gateway or sdk.AiGatewayConfig()).rate_limits
    api.update_notifications(
        "detector", email_notifications=sdk.EmailNotifications(on_update_failure=["a@example.com"])
    )
    assert api.logs("detector", "main").logs == ""
    metrics = api.export_metrics("detector").contents
    assert metrics is not None
    assert b"# TYPE" in metrics.read()
    document = api.get_open_api("detector").contents
    assert document is not None
    assert json.loads(document.read())["openapi"].startswith("3.")

    identity = str(found.id)
    levels = api.get_permission_levels(identity).permission_levels or []
    assert {str(level.permission_level.value) for level in levels if level.permission_level} == {
        "CAN_VIEW",
        "CAN_QUERY",
        "CAN_MANAGE",
    }
    users = sdk.ServingEndpointAccessControlRequest(
        group_name="users", permission_level=sdk.ServingEndpointPermissionLevel.CAN_QUERY
    )
    api.set_permissions(identity, access_control_list=[users])
    text = valkey.hget(bus.ROUTES, "detector")
    assert isinstance(text, str)
    assert from_json(Route, text).group_levels == {"users": "CAN_QUERY"}

    api.delete("detector")
    assert list(api.list()) == []
    assert valkey.hget(bus.ROUTES, "detector") is None
    assert Endpoint.objects.get().is_deleting
