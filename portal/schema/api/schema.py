"""The description of the description."""

from __future__ import annotations

from portal.schema.api import views
from portal.schema.calls import Call, describe

describe(
    views.SchemaView,
    get=Call(
        id="get_schema",
        group="This reference",
        summary="Get this API's OpenAPI document",
        text="For people who are logged in too; browsers need no token.",
        answer={"type": "object", "required": ["openapi", "info", "paths", "components"]},
    ),
)
