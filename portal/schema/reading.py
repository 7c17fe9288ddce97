"""The OpenAPI document as the reference page shows it: chapters, calls, rows of fields."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from portal.schema.calls import JSON
from portal.schema.document import document

MAX_DEPTH = 6
BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "maxLength": "at most {} characters",
    "maxItems": "at most {} items",
    "pattern": "matches {}",
    "default": "default {}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A row: a field of an object, or a parameter.

    Attributes:
        link: The component that it is or that it lists; "" where its own fields follow.
        depth: How many objects it lies in.
        place: "path", "query" or "header" of a parameter.
    """

    name: str
    kind: str
    is_required: bool
    text: str
    words: tuple[str, ...]
    notes: tuple[str, ...]
    link: str = ""
    depth: int = 0
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerView:
    """An answer of one status; errors have no fields of their own."""

    status: str
    title: str
    text: str
    media_type: str
    is_error: bool
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """A call as it is shown."""

    id: str
    method: str
    path: str
    summary: str
    paragraphs: tuple[str, ...]
    is_open: bool
    parameters: tuple[Field, ...]
    body: tuple[Field, ...]
    is_body_required: bool
    body_type: str
    answers: tuple[AnswerView, ...]
    errors: tuple[AnswerView, ...]
    curl: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A group of calls."""

    id: str
    title: str
    calls: tuple[CallView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectView:
    """A component that answers are made of."""

    name: str
    text: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The whole page."""

    introduction: tuple[str, ...]
    chapters: tuple[Chapter, ...]
    objects: tuple[ObjectView, ...]


def reference_for(host: str) -> Reference:
    """Every call by group, with examples for `host`, and the objects that they answer."""
    found = document(host)
    by_group: dict[str, list[CallView]] = {tag["name"]: [] for tag in found["tags"]}
    reader = Reader(found, host)
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            by_group[operation["tags"][0]].append(reader.call(method.upper(), path, operation))
    return Reference(
        introduction=tuple(found["info"]["description"].split("\n\n")),
        chapters=tuple(
            Chapter(id=title.lower().replace(" ", "-"), title=title, calls=tuple(calls))
            for title, calls in by_group.items()
        ),
        objects=tuple(reader.objects()),
    )


class Reader:
    """Turns a document's operations into rows."""

    def __init__(self, found: Mapping[str, Any], host: str) -> None:
        self.schemas: Mapping[str, Any] = found["components"]["schemas"]
        self.host = host
        self.linked: set[str] = set()

    def call(self, method: str, path: str, operation: Mapping[str, Any]) -> CallView:
        """One operation."""
        media_type, media = _only(operation.get("requestBody", {}).get("content", {}))
        answers = [self._answer(*item) for item in operation["responses"].items()]
        return CallView(
            id=operation["operationId"],
            method=method,
            path=path,
            summary=operation["summary"],
            paragraphs=tuple(operation.get("description", "").split("\n\n")),
            is_open={} in operation["security"],
            parameters=tuple(self._parameter(p) for p in operation.get("parameters", ())),
            body=tuple(self._fields(media.get("schema", {}))),
            is_body_required=operation.get("requestBody", {}).get("required", False),
            body_type=media_type,
            answers=tuple(answer for answer in answers if not answer.is_error),
            errors=tuple(answer for answer in answers if answer.is_error),
            curl=_curl(method, self.host + path, operation),
        )

    def _parameter(self, parameter: Mapping[str, Any]) -> Field:
        return self._field(
            parameter["name"],
            {**parameter["schema"], "description": parameter.get("description", "")},
            is_required=parameter.get("required", False),
            place=parameter["in"],
        )

    def _answer(self, status: str, answer: Mapping[str, Any]) -> AnswerView:
        media_type, media = _only(answer.get("content", {}))
        is_error = int(status) >= 400
        return AnswerView(
            status=status,
            title=HTTPStatus(int(status)).phrase,
            text=answer["description"],
            media_type=media_type,
            is_error=is_error,
            fields=() if is_error else tuple(self._linked_fields(media.get("schema", {}))),
        )

    def objects(self) -> Iterator[ObjectView]:
        """Every component that an answer links to, by name."""
        for name in sorted({*self.linked, "Error"}):
            schema = self.schemas[name]
            fields = tuple(self._linked_fields(schema))
            yield ObjectView(name=name, text=schema.get("description", ""), fields=fields)

    def _linked_fields(self, schema: Mapping[str, Any]) -> Iterator[Field]:
        """The fields of an object alone; objects in it are linked."""
        plain = self._plain(schema)
        for name, inner in plain.get("properties", {}).items():
            link = self._component(inner)
            if link and link not in self.linked:
                self.linked.add(link)
                list(self._linked_fields(self.schemas[link]))  # links the objects in it
            is_required = name in plain.get("required", ())
            yield self._field(name, inner, is_required=is_required, link=link)

    def _component(self, schema: Mapping[str, Any]) -> str:
        """The component that a field holds or lists."""
        if "$ref" in schema:
            return str(schema["$ref"]).rpartition("/")[2]
        items = [schema["items"]] if schema.get("items") else []
        inner = (*schema.get("allOf", ()), *schema.get("oneOf", ()), *items)
        return next(filter(None, map(self._component, inner)), "")

    def _fields(self, schema: Mapping[str, Any], depth: int = 0) -> Iterator[Field]:
        """The fields of an object, each followed by those of the objects in it."""
        plain = self._plain(schema)
        required = plain.get("required", ())
        for name, inner in plain.get("properties", {}).items():
            yield self._field(name, inner, is_required=name in required, depth=depth)
            if depth < MAX_DEPTH:
                yield from self._fields(self._item(inner), depth + 1)

    def _field(
        self,
        name: str,
        schema: Mapping[str, Any],
        *,
        is_required: bool,
        link: str = "",
        depth: int = 0,
        place: str = "",
    ) -> Field:
        plain = self._plain(schema)
        item = self._item(schema)
        words = [str(word) for word in item.get("enum", ()) if word is not None]
        return Field(
            name=name,
            kind=self._kind(plain),
            is_required=is_required,
            text=schema.get("description", "") or plain.get("description", ""),
            words=tuple(words),
            notes=tuple(
                text.format(json.dumps(plain[key]) if key == "default" else plain[key])
                for key, text in BOUNDS.items()
                if plain.get(key) not in (None, "")
            ),
            link=link,
            depth=depth,
            place=place,
        )

    def _plain(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """A schema without references and wrappers; what was said around them stays."""
        if "$ref" in schema:
            return self.schemas[str(schema["$ref"]).rpartition("/")[2]]  # type: ignore[no-any-return]  # JSON
        for key in ("allOf", "oneOf", "anyOf"):
            for inner in schema.get(key, ()):
                if inner.get("type") != "null":
                    return self._plain(inner)
        return schema

    def _item(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a list holds; the thing itself where it is no list."""
        plain = self._plain(schema)
        while "items" in plain:
            plain = self._plain(plain.get("items", {}))
        return plain

    def _kind(self, plain: Mapping[str, Any]) -> str:
        found = plain.get("type", "anything")
        kinds = [kind for kind in found if kind != "null"] if isinstance(found, list) else [found]
        if kinds == ["array"]:
            return f"list of {self._kind(self._plain(plain.get('items', {})))}"
        return " or ".join("bytes" if plain.get("format") == "binary" else kind for kind in kinds)


def _only(content: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    return next(iter(content.items()), ("", {}))


def _curl(method: str, url: str, operation: Mapping[str, Any]) -> str:
    """The call as a command; capitals are to be filled in, the token comes from the environment."""
    wanted = [
        f"{parameter['name']}={parameter['name'].upper()}"
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query" and parameter.get("required")
    ]
    address = re.sub(r"{(\w+)}", lambda found: found[1].upper(), url) + "?" * bool(wanted)
    option = "--head" if method == "HEAD" else f"-X {method}"
    lines = [f'curl {option} "{address}{"&".join(wanted)}"']
    if {} not in operation["security"]:
        lines.append('-H "Authorization: Bearer $DATABRICKS_TOKEN"')
    media_type, media = _only(operation.get("requestBody", {}).get("content", {}))
    if media_type == JSON:
        examples: Mapping[str, Any] = media.get("examples", {})
        example: object = next((each["value"] for each in examples.values()), {})
        lines.append('-H "Content-Type: application/json"')
        lines.append(f"-d {shlex.quote(json.dumps(example, ensure_ascii=False))}")
    elif media_type:
        lines.append("--data-binary @FILE")
    return " \\\n  ".join(lines)
