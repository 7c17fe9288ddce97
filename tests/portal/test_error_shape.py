"""The one error shape, asked of every route that there is, whatever comes in.

A new route is in this test by itself. `BODIES` and `QUERY` make the questions better: each field
that they name is sent with every wrong type. Thousands of calls go to one database, filled once a
test; what a route's calls change is rolled back.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import Client

from portal.schema.calls import CALLS
from tests.support.api_routes import METHODS, FoundRoute, all_routes
from tests.support.factories import Cast, ModelVersionFactory, live_endpoint, make_cast

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("valkey"),
    pytest.mark.timeout(900),  # each walks all routes
]

STATUSES = {200, 204, 400, 401, 403, 404, 409, 429, 501, 503, 504}
CODES = {
    400: {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST", "INVALID_STATE"},
    401: {"UNAUTHENTICATED"},
    403: {"PERMISSION_DENIED", "FEATURE_DISABLED"},
    404: {"RESOURCE_DOES_NOT_EXIST", "NOT_FOUND", "ENDPOINT_NOT_FOUND"},
    409: {"RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS", "RESOURCE_CONFLICT"},
    429: {"REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED"},
    501: {"NOT_IMPLEMENTED"},
    503: {"TEMPORARILY_UNAVAILABLE"},
    504: {"DEADLINE_EXCEEDED"},
}
RETRIED = (
    "Unexpected error",
    "Please try again later or try a faster operation.",
    "RPC token bucket limit has been exceeded",
    "ClusterNotReadyException",
    "Unknown worker environment",
)
"""Words that make the SDK send the call again."""
PATIENCE_S = 10.0

MODEL = "main.default.detector"
ENTITY = {
    "name": "main",
    "entity_name": MODEL,
    "entity_version": "1",
    "workload_type": "CPU",
    "workload_size": "Small",
    "scale_to_zero_enabled": False,
    "min_provisioned_concurrency": 4,
    "max_provisioned_concurrency": 4,
    "throughput_optimized": False,
    "environment_vars": {"A": "1"},
    "batching": {"max_batch_size": 4, "preferred_batch_size": [2]},
}
TRAFFIC = {"routes": [{"served_entity_name": "main", "traffic_percentage": 100}]}
LIMITS = [{"key": "user", "calls": 5, "renewal_period": "minute", "principal": "admin"}]
GATEWAY = {
    "rate_limits": LIMITS,
    "usage_tracking_config": {"enabled": True},
    "inference_table_config": {"enabled": False},
    "guardrails": {},
    "fallback_config": {},
}
TAGS = [{"key": "k", "value": "v"}]
MAILS = {"on_update_success": ["a@x"], "on_update_failure": ["a@x"]}
GRANTS = {"access_control_list": [{"user_name": "viewer", "permission_level": "CAN_VIEW"}]}
FILE = "/Volumes/main/default/data/a.bin"
VERSION = {"name": MODEL, "version": "1"}

ENDPOINTS = "/api/2.0/serving-endpoints"
CATALOG = "/api/2.0/mlflow/unity-catalog"
FILES = "/api/2.0/fs"
SCIM = "/api/2.0/preview/scim/v2"
PATCH = {"Operations": [{"op": "add", "path": "active", "value": [{"value": "1"}]}]}
BODIES: dict[str, dict[str, Any]] = {
    ENDPOINTS: {
        "name": "new-one",
        "description": "d",
        "config": {"served_entities": [ENTITY], "traffic_config": TRAFFIC},
        "tags": TAGS,
        "email_notifications": MAILS,
        "rate_limits": LIMITS,
        "ai_gateway": GATEWAY,
    },
    f"{ENDPOINTS}/{{name}}/config": {"served_entities": [ENTITY], "traffic_config": TRAFFIC},
    f"{ENDPOINTS}/{{name}}/tags": {"add_tags": TAGS, "delete_tags": ["k"]},
    f"{ENDPOINTS}/{{name}}/notifications": {"email_notifications": MAILS},
    f"{ENDPOINTS}/{{name}}/rate-limits": {"rate_limits": LIMITS},
    f"{ENDPOINTS}/{{name}}/ai-gateway": GATEWAY,
    "/api/2.0/permissions/serving-endpoints/{public_id}": GRANTS,
    f"{ENDPOINTS}:stageDeployment": {"model_name": MODEL, "model_version": "1"},
    f"{CATALOG}/registered-models/create": {
        "name": "main.default.new",
        "description": "d",
        "tags": TAGS,
    },
    f"{CATALOG}/registered-models/update": {"name": MODEL, "description": "d", "new_name": "a.b.c"},
    f"{CATALOG}/registered-models/set-tag": {"name": MODEL, "key": "k", "value": "v"},
    f"{CATALOG}/registered-models/delete-tag": {"name": MODEL, "key": "k"},
    f"{CATALOG}/registered-models/alias": {"name": MODEL, "alias": "a", "version": "1"},
    f"{CATALOG}/model-versions/create": {
        "name": MODEL,
        "source": "s",
        "run_id": "r",
        "description": "d",
        "tags": TAGS,
        "feature_deps": "",
        "model_id": "m",
    },
    f"{CATALOG}/model-versions/update": VERSION | {"description": "d"},
    f"{CATALOG}/model-versions/set-tag": VERSION | {"key": "k", "value": "v"},
    f"{CATALOG}/model-versions/delete-tag": VERSION | {"key": "k"},
    f"{CATALOG}/model-versions/generate-temporary-credentials": VERSION
    | {"operation": "MODEL_VERSION_OPERATION_READ_WRITE"},
    f"{CATALOG}/model-versions/emit-lineage": VERSION | {"model_version_lineage_info": {}},
    f"{FILES}/create-upload-part-urls": {
        "path": FILE,
        "session_token": "t",
        "start_part_number": 1,
        "count": 1,
        "expire_time": "2030-01-01T00:00:00Z",
    },
    f"{FILES}/create-upload-url": {"path": FILE, "expire_time": "2030-01-01T00:00:00Z"},
    f"{FILES}/create-download-url": {"path": FILE, "expire_time": "2030-01-01T00:00:00Z"},
    f"{FILES}/files/{{path}}": {"parts": [{"part_number": 1, "etag": "e"}]},
    "/api/2.0/token/create": {"comment": "c", "lifetime_seconds": 60, "scopes": ["all"]},
    "/api/2.0/token/delete": {"token_id": "t"},
    f"{SCIM}/Users": {
        "userName": "new",
        "displayName": "N",
        "name": {"givenName": "N", "familyName": "M"},
        "emails": [{"value": "n@x.org", "primary": True}],
        "active": True,
        "groups": [{"value": "1"}],
    },
    f"{SCIM}/Users/{{user_id}}": PATCH,
    f"{SCIM}/Groups": {"displayName": "new", "members": [{"value": "1"}]},
    f"{SCIM}/Groups/{{group_id}}": PATCH,
    "/api/2.0/previews/{name}": {"enabled": True},
    "/api/2.0/secrets/scopes/create": {"scope": "s", "initial_manage_principal": "users"},
    "/api/2.0/secrets/scopes/delete": {"scope": "s"},
    "/api/2.0/secrets/put": {"scope": "s", "key": "k", "string_value": "v", "bytes_value": "dg=="},
    "/api/2.0/secrets/delete": {"scope": "s", "key": "k"},
    "/api/2.0/secrets/acls/put": {"scope": "s", "principal": "users", "permission": "READ"},
    "/api/2.0/secrets/acls/delete": {"scope": "s", "principal": "users"},
}
DEFAULT_BODY = VERSION
QUERY = {
    **{"name": MODEL, "version": "1", "alias": "a", "filter": "name='a.b.c'", "max_results": "5"},
    **{"page_token": "x", "page_size": "5", "path": FILE, "action": "complete-upload"},
    **{"overwrite": "true", "session_token": "t", "upload_type": "multipart", "scope": "s"},
    **{"expire_time": "2030-01-01T00:00:00Z", "key": "k", "principal": "users", "limit": "5"},
    **{"start_time": "0", "end_time": "1", "format": "json", "before": "1", "after": "1"},
}
WRITING = {"POST", "PUT", "PATCH", "DELETE"}
WRONG: list[Any] = [
    *(None, True, -1, 10**18, 1.5, "", "x" * 70_000, "\u202e💥"),
    *([], {}, [[]], {"a": {"b": []}}),
]
WRONG_TEXTS = [
    *("", "-1", "0", "1e9", "99999999999999999999", "true", "[]", "{}", "'", "../..", "\u202e💥"),
    *("x" * 5000, "%00", "%ff%fe", "%ed%a0%80", "%25"),
]
BODIES_OF_NO_USE: dict[str, bytes] = {
    "not JSON": b'{"name": ',
    "a list": b"[1, 2]",
    "a text": b'"x"',
    "a number": b"7",
    "null": b"null",
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep enough to be read": b'{"a":' * 500 + b"1" + b"}" * 500,
    "not UTF-8": b'{"name": "\xff\xfe"}',
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"name": "x"}',
    "NUL in a text": b'{"name": "a\\u0000b", "config": {"x": "\\u0000"}}',
    "NUL in a key": b'{"a\\u0000b": 1}',
    "NUL bytes": b"\x00" * 1000,
    "half a pair": b'{"name": "\\ud800"}',
    "a huge integer": b'{"name": ' + b"9" * 5000 + b"}",
    "65 bits": b'{"lifetime_seconds": 18446744073709551616, "max": [18446744073709551616]}',
    "infinity": b'{"name": 1e999}',
    "NaN": b'{"name": NaN}',
    "a form": b"name=x&config=y",
}


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def values(cast: Cast) -> dict[str, str]:
    """Names of objects that are there, by the variable places of routes."""
    endpoint = live_endpoint(
        creator=cast.admin.user,
        endpoint_name="detector",
        model_version=ModelVersionFactory(staged=True, model__name=MODEL),
    )
    entity = endpoint.active_config.entities.get() if endpoint.active_config else None
    return {
        "name": "detector",
        "entity": entity.name if entity else "",
        "public_id": endpoint.public_id,
        "user_id": str(cast.viewer.user.pk),
        "group_id": str(Group.objects.create(name="team").pk),
        "path": FILE.strip("/"),
        "rest_of_path": "2.0/no/such/thing",
    }


CLIENT = Client(raise_request_exception=False)
"""One for all: each new one would load the middleware again."""


def api_routes(*prefixes: str) -> list[FoundRoute]:
    """The API's routes; only those below `prefixes` where some are named."""
    return [
        route
        for route in all_routes()
        if route.is_api and route.template.startswith(prefixes or "/")
    ]


@contextmanager
def each(subtests: pytest.Subtests, route: FoundRoute) -> Iterator[None]:
    """A test of the route alone; what it changes is undone."""
    with subtests.test(route.template), transaction.atomic():
        yield
        transaction.set_rollback(True)


def filled(route: FoundRoute, values: Mapping[str, str]) -> str:
    here = dict(values)
    if "previews" in route.template:
        here["name"] = "throughput_optimized"
    return route.path(here)


def ask(
    method: str,
    path: str,
    body: bytes = b"",
    *,
    token: str | None = None,
    content_type: str = "application/json",
    **headers: str,
) -> tuple[int, Any]:
    """One call; its answer is checked against the contract, whatever it is."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    began = time.monotonic()
    answer = CLIENT.generic(method, path, body, content_type, headers=headers)
    asked = f"{method} {path[:200]} {body[:200]!r}: {answer.status_code} {answer.content[:300]!r}"

    assert time.monotonic() - began < PATIENCE_S, asked
    assert answer.status_code in STATUSES, asked
    if answer.status_code in {200, 204}:
        return answer.status_code, None
    if method == "HEAD":
        assert not answer.content, asked
        return answer.status_code, None
    return answer.status_code, checked(
        answer.status_code, answer["Content-Type"], answer.content, asked
    )


def checked(status: int, content_type: str, content: bytes, asked: str) -> Any:
    """The body of an error, which has the one shape."""
    assert content_type.startswith("application/json"), asked
    error = json.loads(content)
    assert set(error) == {"error_code", "message", "details", "request_id"}, asked
    assert error["error_code"] in CODES[status], asked
    assert isinstance(error["message"], str), asked
    assert error["message"].strip(), asked
    assert not any(words in error["message"] for words in RETRIED), asked
    assert isinstance(error["details"], list), asked
    assert error["request_id"], asked
    return error


# ---------------------------------------------------------------- who asks, and by what method


def test_without_a_token_or_with_a_bad_one_it_is_a_401(
    values: dict[str, str], subtests: pytest.Subtests
) -> None:
    for route in api_routes():
        with each(subtests, route):
            path = filled(route, values)
            is_open = not hasattr(route.view, "cls")
            for method in METHODS:
                assert ask(method, path)[0] in ({200, 404} if is_open else {401})
            for value in ("Bearer wrong", "Bearer ", "Basic dG9rZW46eA==", "x", "Bearer \xe9"):
                assert is_open or ask("POST", path, Authorization=value)[0] == 401


def test_an_unknown_method_is_an_unknown_path(
    cast: Cast, values: dict[str, str], subtests: pytest.Subtests
) -> None:
    for route in api_routes():
        with each(subtests, route):
            path = filled(route, values)
            for method in (*METHODS, "PROPFIND"):
                if method in route.methods or not hasattr(route.view, "cls"):
                    continue
                status, error = ask(method, path, token=cast.admin.token)
                assert status == 404
                assert error is None or error["error_code"] == "ENDPOINT_NOT_FOUND"


def test_an_unknown_object_is_a_404(
    cast: Cast, values: dict[str, str], subtests: pytest.Subtests
) -> None:
    unknown = ["nobody-knows", "a" * 300, quote("é/\u202e"), "%20", "%00", "%ff", "..", "-1", "'"]
    for route in api_routes():
        with each(subtests, route):
            body = json.dumps(BODIES.get(route.template, {})).encode()
            for method in route.methods:
                for name in unknown if route.names else []:
                    path = route.path(dict.fromkeys(route.names, name))
                    status, _ = ask(method, path, body, token=cast.admin.token)
                    assert status in {400, 404, 200, 204}


def test_what_a_stranger_may_not_see_is_not_there(
    cast: Cast, values: dict[str, str], subtests: pytest.Subtests
) -> None:
    for route in api_routes(f"{ENDPOINTS}/", "/api/2.0/permissions/serving-endpoints/"):
        with each(subtests, route):
            body = json.dumps(BODIES.get(route.template, {})).encode()
            for method in route.methods:
                path = filled(route, values)
                assert ask(method, path, body, token=cast.stranger.token)[0] == 404


# ---------------------------------------------------------------- what is sent


def test_a_body_of_no_use_is_a_400(
    cast: Cast, values: dict[str, str], subtests: pytest.Subtests
) -> None:
    for route in api_routes():
        with each(subtests, route):
            path = filled(route, values)
            takes_body = route.template in BODIES or CATALOG in route.template
            may = {400} if takes_body else {400, 404, 200, 204}
            if "{path}" in route.template:
                may = {400, 404, 204}
            for method in WRITING & set(route.methods):
                for name, body in BODIES_OF_NO_USE.items():
                    status, _ = ask(method, path, body, token=cast.admin.token)
                    assert status in may, f"{method} {path}: {name}"


def test_a_field_of_the_wrong_type_is_a_400(
    cast: Cast, values: dict[str, str], subtests: pytest.Subtests
) -> None:
    met: set[tuple[Any, int]] = set()
    for route in api_routes():
        with each(subtests, route):
            path = filled(route, values)
            if FILES in path:
                path += "?action=complete-upload&session_token=t"
            good = BODIES.get(route.template, DEFAULT_BODY)
            bodies = list(wrong_bodies(good, met))
            for method in WRITING & set(route.methods):
                for body in bodies:
                    ask(method, path, json.dumps(body).encode(), token=cast.admin.token)
                for content_type in ("", "text/plain", "multipart/form-data; boundary=x", "a/b"):
                    sent = json.dumps(good).encode()
                    ask(method, path, sent, token=cast.admin.token, content_type=content_type)


def wrong_bodies(good: dict[str, Any], met: set[tuple[Any, int]]) -> Iterator[Any]:
    """`good` without each of its parts, and with each of them replaced by what it cannot be.

    What several routes take under the same name (a served entity, tags, limits) is taken apart for
    the first of them, which `met` remembers; the others get it replaced as a whole.
    """
    for place in list(places(good, met)):
        for wrong in (*WRONG, KeyError):
            body = copy.deepcopy(good)
            parent: Any = body
            for key in place[:-1]:
                parent = parent[key]
            if wrong is KeyError:
                del parent[place[-1]]
            else:
                parent[place[-1]] = wrong
            yield body


def places(value: Any, met: set[tuple[Any, int]]) -> Iterator[tuple[Any, ...]]:
    """The address of each part of a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        yield (key,)
        if isinstance(item, (dict, list)) and (key, id(item)) not in met:
            met.add((key, id(item)))
            yield from ((key, *rest) for rest in places(item, met))


def test_a_query_parameter_of_no_use_is_a_400(
    cast: Cast, values: dict[str, str], subtests: pytest.Subtests
) -> None:
    for route in api_routes():
        with each(subtests, route):
            path = filled(route, values)
            for method in route.methods:
                if method == "HEAD":
                    continue  # as GET
                for wrong in WRONG_TEXTS:
                    value = wrong if wrong.startswith("%") else quote(wrong)
                    query = "&".join(f"{name}={value}" for name in QUERY)
                    ask(method, f"{path}?{query}", token=cast.admin.token)
                for name in read_by(route, method):
                    others = "&".join(f"{k}={quote(v)}" for k, v in QUERY.items() if k != name)
                    for text in ("", f"&{name}=-1"):
                        ask(method, f"{path}?{others}{text}", token=cast.admin.token)


def read_by(route: FoundRoute, method: str) -> list[str]:
    """The parameters that a call reads; any of them where its view looks for them itself."""
    if FILES in route.template:
        return list(QUERY)
    call = CALLS.get((getattr(route.view, "cls", None), method))  # type: ignore[arg-type]  # no view
    fields = call.query().fields if call is not None and call.query is not None else ()
    return [name for name in QUERY if name in fields]


def test_an_unknown_path_is_a_404_with_and_without_a_token(cast: Cast) -> None:
    for path in ("/api", "/api/", "/api/2.0", "/api/2.1/x", "/serving-endpoints", "/.well-known/x"):
        for method in METHODS:
            assert ask(method, path)[0] == 404
            assert ask(method, path, token=cast.admin.token)[0] == 404


# ---------------------------------------------------------------- pages


def test_pages_answer_in_html_whatever_comes(
    cast: Cast, values: dict[str, str], subtests: pytest.Subtests
) -> None:
    browser = Client(raise_request_exception=False)
    for route in all_routes():
        if route.is_api:
            continue
        browser.force_login(cast.viewer.user)  # one route logs out, others are rolled back
        with each(subtests, route):
            ask_page(browser, route, values)


def ask_page(browser: Client, route: FoundRoute, values: dict[str, str]) -> None:
    numbers = {n: "999999" for n in route.names if n.endswith("_id") or n in {"number", "index"}}
    unknown = dict.fromkeys(route.names, "none") | numbers
    here = unknown | dict.fromkeys(numbers, "1") | values
    is_data = "/logs/lines/" in route.template or "/logs/stream/" in route.template
    for path in {route.path(here), route.path(unknown)}:
        if "/stream/" in path and path == route.path(here):
            continue  # it would not end
        for method in METHODS:
            bodies = (b"", b"\xff\xfe{", b"a=%00&b=%ff", b"[" * 10_000)
            for body in bodies if method in {"GET", "POST"} else bodies[:2]:
                kinds = ("application/x-www-form-urlencoded", "application/json")
                for kind in kinds if body else kinds[:1]:
                    answer = browser.generic(method, f"{path}?q=%ff&page=-1&x", body, kind)
                    asked = f"{method} {path} {body[:20]!r} {kind}: {answer.status_code}"
                    assert answer.status_code in {200, 204, 302, 400, 403, 404, 405}, asked
                    if answer.status_code in {400, 403, 404}:
                        kinds_of_answer = ("text/", *(["application/json"] if is_data else []))
                        assert answer["Content-Type"].startswith(kinds_of_answer), asked
