"""What the calls on serving endpoints take and answer; queries are described here as well."""

from __future__ import annotations

from functools import partial

from drf_spectacular.utils import OpenApiParameter

from portal.endpoints.api import schema_answers as answered
from portal.endpoints.api import schema_requests as asked
from portal.endpoints.api import views
from portal.endpoints.api.schema_profile import Profile
from portal.schema.calls import (
    NOTHING,
    Answer,
    Call,
    describe,
    describe_path,
    path_parameter,
)

NAME = path_parameter("name", "The endpoint's name.", pattern=r"^[^/]+$")
ENTITY = path_parameter("entity", "The served entity's name.", pattern=r"^[^/]+$")
ID = path_parameter("public_id", "The endpoint's id, not its name.", pattern=r"^[^/]+$")
ENTITY_EXAMPLE = {
    "entity_name": "main.default.detector",
    "entity_version": "1",
    "workload_type": "GPU_SMALL",
    "workload_size": "Small",
    "throughput_optimized": True,
}
call = partial(Call, group="Serving endpoints")
read = partial(call, parameters=(NAME,), errors=(404,))
change = partial(call, parameters=(NAME,), errors=(403, 404))

describe(
    views.EndpointsView,
    get=call(
        id="list_endpoints",
        summary="List the endpoints that the caller may see",
        answer=answered.EndpointList,
    ),
    post=call(
        id="create_endpoint",
        summary="Create an endpoint",
        text=(
            "Answers at once; the deployment runs on. Poll the endpoint until "
            "`state.config_update` is no longer `IN_PROGRESS`.\n\n"
            "`throughput_optimized` is refused with 403 `FEATURE_DISABLED` while the preview is "
            "off, and with 400 where another of its rules fails."
        ),
        body=asked.CreateEndpoint,
        example={"name": "detector", "config": {"served_entities": [ENTITY_EXAMPLE]}},
        answer=answered.Endpoint,
        errors=(403, 409, 429),
    ),
)
describe(
    views.EndpointView,
    get=read(id="get_endpoint", summary="Get an endpoint", answer=answered.Endpoint),
    delete=change(id="delete_endpoint", summary="Delete an endpoint", answer=NOTHING),
)
describe(
    views.ConfigView,
    put=call(
        id="update_config",
        summary="Deploy another config",
        text=(
            "The running config answers until the new one is ready. One update at a time: 409 "
            "`RESOURCE_CONFLICT` during another. Where `throughput_optimized` is left out it "
            "stays as it is."
        ),
        parameters=(NAME,),
        body=asked.EndpointConfigInput,
        example={"served_entities": [ENTITY_EXAMPLE]},
        answer=answered.Endpoint,
        errors=(403, 404, 409, 429),
    ),
)
describe(
    views.TagsView,
    patch=change(
        id="update_endpoint_tags",
        summary="Add and delete tags",
        body=asked.TagChanges,
        is_body_required=False,
        example={"add_tags": [{"key": "team", "value": "harbour"}], "delete_tags": ["draft"]},
        answer=answered.EndpointTagList,
    ),
)
describe(
    views.NotificationsView,
    patch=change(
        id="update_notifications",
        summary="Set who is told of updates",
        body=asked.NotificationsInput,
        is_body_required=False,
        example={"email_notifications": {"on_update_failure": ["ops@example.com"]}},
        answer=answered.NotificationsAnswer,
    ),
)
describe(
    views.RateLimitsView,
    put=change(
        id="put_rate_limits",
        summary="Replace the rate limits, in the older form",
        body=asked.RateLimitsInput,
        is_body_required=False,
        example={"rate_limits": [{"calls": 100, "key": "user", "renewal_period": "minute"}]},
        answer=answered.RateLimits,
    ),
)
describe(
    views.AiGatewayView,
    put=change(
        id="put_ai_gateway",
        summary="Replace the AI gateway's settings",
        text="An empty object clears them. Only rate limits have an effect here.",
        body=asked.AiGatewayInput,
        is_body_required=False,
        example={"rate_limits": [{"calls": 100, "key": "user", "renewal_period": "minute"}]},
        answer=answered.AiGateway,
    ),
)
describe(
    views.StopView,
    post=change(
        id="stop_endpoint",
        summary="Stop an endpoint",
        errors=(403, 404, 409),
        text="Its replicas are drained and stopped; queries answer 400 `INVALID_STATE`.",
        answer=answered.Endpoint,
    ),
)
describe(
    views.StartView,
    post=change(
        id="start_endpoint",
        summary="Start a stopped endpoint",
        answer=answered.Endpoint,
        errors=(403, 404, 409),
    ),
)
describe(
    views.CancelUpdateView,
    post=change(
        id="cancel_update", summary="Cancel the update that is running", answer=answered.Endpoint
    ),
)
describe(
    views.EventsView,
    get=read(
        id="list_events",
        summary="List what happened to an endpoint, newest first",
        parameters=(
            NAME,
            OpenApiParameter(
                "max_results",
                {"type": "integer", "minimum": 1, "maximum": views.MAX_EVENTS, "default": 100},
            ),
        ),
        answer=answered.EventList,
    ),
)
describe(
    views.MetricsView,
    get=read(
        id="export_metrics",
        summary="Get metrics in Prometheus' text format",
        text="Traffic, latency, use of processors, memory and GPUs, and the state of replicas.",
        answers={200: Answer(text="Metrics.", shape={"type": "string"}, media_type="text/plain")},
    ),
)
describe(
    views.OpenApiView,
    get=read(
        id="get_endpoint_openapi",
        summary="Get an OpenAPI document of the endpoint's own query",
        text="Made from the model's signature and input example.",
        answer={"type": "object", "required": ["openapi", "info", "paths"]},
    ),
)
log = partial(call, parameters=(NAME, ENTITY), answer=answered.Logs, errors=(404,))
describe(
    views.LogsView,
    get=log(
        id="get_logs", summary=f"Get the last {views.LOG_LINES} lines of a served entity's log"
    ),
)
describe(
    views.BuildLogsView,
    get=log(id="get_build_logs", summary="Get the log of the environment's build"),
)

describe(
    views.ProfileView,
    get=call(
        id="get_profile",
        summary="Get the measurements that a served entity's batching comes from",
        text="404 where none were taken; `batching_in_force` of the endpoint says why.",
        parameters=(NAME, ENTITY),
        answer=Profile,
        errors=(404,),
    ),
    post=call(
        id="measure_again",
        summary="Drop the measurements, so that the next deployment takes them anew",
        parameters=(NAME, ENTITY),
        answer=NOTHING,
        errors=(403, 404),
    ),
)

# ---------------------------------------------------------------- permissions
permission_call = partial(Call, group="Permissions", parameters=(ID,))
GRANT_EXAMPLE = {"access_control_list": [{"group_name": "users", "permission_level": "CAN_QUERY"}]}
describe(
    views.PermissionsView,
    get=permission_call(
        id="get_permissions",
        summary="Get who may do what",
        answer=answered.AccessControl,
        errors=(403, 404),
    ),
    put=permission_call(
        id="set_permissions",
        summary="Replace who may do what",
        text="The creator and the admins keep CAN_MANAGE.",
        body=asked.AccessControlInput,
        is_body_required=False,
        example=GRANT_EXAMPLE,
        answer=answered.AccessControl,
        errors=(403, 404),
    ),
    patch=permission_call(
        id="update_permissions",
        summary="Add to or change who may do what",
        body=asked.AccessControlInput,
        is_body_required=False,
        example=GRANT_EXAMPLE,
        answer=answered.AccessControl,
        errors=(403, 404),
    ),
)
describe(
    views.PermissionLevelsView,
    get=permission_call(
        id="get_permission_levels",
        summary="Get the levels and what they allow",
        answer=answered.PermissionLevels,
        errors=(404,),
    ),
)

# ---------------------------------------------------------------- queries
query = partial(
    Call,
    group="Queries",
    text=(
        "Give one of `dataframe_split`, `dataframe_records`, `inputs` and `instances`; "
        "`GET /api/2.0/serving-endpoints/{name}/openapi` says what this endpoint's model takes."
    ),
    body=asked.QUERY,
    example={"dataframe_records": [{"length": 12.5, "width": 3.1}]},
    answers={
        200: Answer(
            text="One prediction for each row.",
            shape=answered.PREDICTIONS,
            headers={"served-model-name": "The served entity that answered."},
        )
    },
    errors=(403, 404, 429, 503, 504),
)
describe_path(
    "/serving-endpoints/{name}/invocations",
    post=query(id="query", summary="Query an endpoint", parameters=(NAME,)),
)
describe_path(
    "/serving-endpoints/{name}/served-models/{entity}/invocations",
    post=query(
        id="query_served_entity",
        summary="Query one served entity, whatever its share",
        parameters=(NAME, ENTITY),
    ),
)
