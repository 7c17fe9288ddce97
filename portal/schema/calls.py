"""How the calls of the API are described, apart from the views that answer them.

Each app says in its `api/schema.py` what its calls take and answer; the views know nothing of it.
Calls that are answered before Django (bodies of files, signed links, the gateway) are described
the same way, by their path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

Schema = dict[str, Any]
Shape = type[Serializer[Any]] | Schema
"""A JSON object: a serializer, which becomes a component, or a schema as it stands."""

JSON = "application/json"
BYTES = "application/octet-stream"
NOTHING: Schema = {"type": "object", "maxProperties": 0, "description": "An empty object."}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of one status.

    Attributes:
        shape: What its body holds; None for no body.
        headers: Names to what they say.
    """

    text: str
    shape: Shape | None = None
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: a method on a path.

    Attributes:
        id: Its name for generated clients, unique.
        group: The chapter of the reference that it stands in.
        text: What the summary leaves open; paragraphs.
        query: Its query parameters, as the view reads them.
        parameters: Parameters beside these: of the path with a description, headers.
        body: Its JSON body; `media_type` for others.
        example: Of the body.
        answer: The body of 200.
        answers: Answers of other statuses, or a 200 that is not JSON; in place of `answer`.
        errors: Statuses of errors beside 400 and, unless `is_open`, 401.
        is_open: Whether it needs no token.
    """

    id: str
    group: str
    summary: str
    text: str = ""
    query: type[Serializer[Any]] | None = None
    parameters: tuple[OpenApiParameter, ...] = ()
    body: Shape | None = None
    media_type: str = JSON
    is_body_required: bool = True
    example: Mapping[str, Any] | None = None
    answer: Shape | None = None
    answers: Mapping[int, Answer] = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    is_open: bool = False


CALLS: dict[tuple[type[APIView], str], Call] = {}
"""By view and method."""
OUTSIDE: dict[str, type[APIView]] = {}
"""Paths that are answered before Django, to what stands for them in `CALLS`."""


def describe(view: type[APIView], **calls: Call) -> None:
    """Say what a view's methods take and answer."""
    for method, call in calls.items():
        CALLS[view, method.upper()] = call


def describe_path(path: str, **calls: Call) -> None:
    """Say what a path takes and answers that no view of Django's serves."""

    class StandIn(APIView):
        def head(self) -> Response:
            return Response()

        get = put = post = delete = head

    OUTSIDE[path] = StandIn
    describe(StandIn, **calls)


def path_parameter(name: str, text: str, **schema: Any) -> OpenApiParameter:
    """A part of the path."""
    kind = {"type": "string", "minLength": 1, **schema}
    return OpenApiParameter(name, kind, OpenApiParameter.PATH, description=text)


def header(name: str, text: str) -> OpenApiParameter:
    """A header that the call reads."""
    return OpenApiParameter(name, str, OpenApiParameter.HEADER, description=text)
