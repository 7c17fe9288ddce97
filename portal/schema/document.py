"""The OpenAPI document of the whole API."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from django.utils.module_loading import autodiscover_modules
from drf_spectacular.generators import SchemaGenerator

from portal.schema.auto import BEARER
from portal.schema.calls import CALLS, OUTSIDE
from portal.schema.errors import error_codes

Route = tuple[str, str, str, Callable[..., Any]]

FIRST_GROUPS = (
    "Serving endpoints",
    "Queries",
    "Permissions",
    "Registered models",
    "Model versions",
    "Files",
)
"""The chapters that most people come for; the others follow."""
INTRODUCTION = """\
The REST API of this workspace: registered models and their files, serving endpoints, permissions \
and tokens. mlflow and databricks-sdk speak it unchanged; set `DATABRICKS_HOST` and \
`DATABRICKS_TOKEN`.

Times are milliseconds since 1970. `null` in a request counts as absent. Every answer that is not \
2xx has one shape, `Error`; 500 `INTERNAL_ERROR` is always a fault of the server. Paths answer \
with and without a trailing slash where clients send both."""


def document(base_url: str) -> dict[str, Any]:
    """The document as a client at `base_url` reads it."""
    return {**_document(), "servers": [{"url": base_url}]}


@cache
def _document() -> dict[str, Any]:
    generator = SchemaGenerator()  # type: ignore[no-untyped-call]  # drf-spectacular's
    found: dict[str, Any] = generator.get_schema(public=True)  # type: ignore[no-untyped-call]  # too
    return found


def described_routes(endpoints: list[Route]) -> list[Route]:
    """drf-spectacular's list of routes, as the descriptions want it (a preprocessing hook).

    Optional trailing slashes go, HEAD and the paths before Django come in, and what nobody
    described is left out (a test sees to it that there is none).
    """
    autodiscover_modules("api.schema")
    found: dict[tuple[str, str], Route] = {}
    for path, regex, method, callback in endpoints:
        for each in (method, "HEAD"):
            if (_view_of(callback), each) in CALLS:
                plain = path.rstrip("/")
                found[plain, each] = plain, regex, each, callback
    for path, view in OUTSIDE.items():
        for kind, method in CALLS:
            if kind is view:
                found[path, method] = path, path, method, view.as_view()
    return [found[key] for key in sorted(found)]


def _view_of(callback: Any) -> Any:
    return getattr(callback, "cls", None)


def complete(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Add what holds for the whole document (a postprocessing hook)."""
    result["info"]["description"] = INTRODUCTION
    components = result["components"]
    components["securitySchemes"] = {
        BEARER: {
            "type": "http",
            "scheme": "bearer",
            "description": "A personal access token: Settings, Access tokens.",
        }
    }
    components["schemas"]["Error"]["properties"]["error_code"]["enum"] = error_codes()
    groups = dict.fromkeys((*FIRST_GROUPS, *(call.group for call in CALLS.values())))
    result["tags"] = [{"name": group} for group in groups]
    _drop_marks(result)
    return result


def _drop_marks(value: Any) -> None:
    """Take out the marks that drf-spectacular leaves for a hook that is not used here."""
    if isinstance(value, dict):
        value.pop("x-spec-enum-id", None)
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            _drop_marks(inner)
