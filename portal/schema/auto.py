"""Reads `portal.schema.calls` for drf-spectacular, which knows the routes and the serializers."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiResponse

from portal.schema.calls import CALLS, JSON, Answer, Call
from portal.schema.errors import ERRORS, WITH_RETRY_AFTER, Error

BEARER = "bearer"


class ApiSchema(AutoSchema):
    """One operation, from its description."""

    call: Call

    def get_operation(
        self, path: str, path_regex: str, path_prefix: str, method: str, *rest: Any
    ) -> Any:
        """The operation of a route that `describe` named."""
        self.call = CALLS[type(self.view), method]
        return super().get_operation(path, path_regex, path_prefix, method, *rest)

    def get_operation_id(self) -> str:
        return self.call.id

    def get_summary(self) -> str:
        return self.call.summary

    def get_description(self) -> str:  # type: ignore[override]  # drf-spectacular's own signature
        return self.call.text

    def get_tags(self) -> list[str]:
        return [self.call.group]

    def get_auth(self) -> list[dict[str, Any]]:
        """A token; for open calls an empty requirement, which overrides the default."""
        return [{}] if self.call.is_open else [{BEARER: []}]

    def get_override_parameters(self) -> list[Any]:
        query = [self.call.query] if self.call.query else []
        return [*query, *self.call.parameters]

    def get_request_serializer(self) -> Any:
        return None if self.call.body is None else {self.call.media_type: self.call.body}

    def get_examples(self) -> list[OpenApiExample]:
        if self.call.example is None:
            return []
        return [OpenApiExample("example", value=dict(self.call.example), request_only=True)]

    def get_response_serializers(self) -> Any:
        answers = dict(self.call.answers)
        if self.call.answer is not None:
            answers[200] = Answer(text="It is done.", shape=self.call.answer)
        found: dict[tuple[int, str], OpenApiResponse] = {
            (status, answer.media_type): OpenApiResponse(answer.shape, answer.text)
            for status, answer in answers.items()
        }
        error = None if self.method == "HEAD" else Error
        for status in {400, *self.call.errors} | (set() if self.call.is_open else {401}):
            found.setdefault((status, JSON), OpenApiResponse(error, ERRORS[status]))
        return dict(sorted(found.items()))

    def _get_request_body(self, direction: Any = "request") -> Any:
        """The body; the registry's DELETEs have one too, which drf-spectacular leaves out."""
        if self.call.body is None:
            return None
        method, self.method = self.method, "POST"
        body = super()._get_request_body(direction)  # type: ignore[no-untyped-call]  # not theirs
        self.method = method
        return {**body, "required": self.call.is_body_required}

    def _get_response_headers_for_code(self, status_code: str, direction: Any = "response") -> Any:
        headers = dict(
            self.call.answers[int(status_code)].headers
            if int(status_code) in self.call.answers
            else {}
        )
        if int(status_code) in WITH_RETRY_AFTER:
            headers["Retry-After"] = "Seconds to wait; a whole number."
        return {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in headers.items()
        }

    def _is_list_view(self, serializer: Any = None) -> bool:
        return False  # each answer is an object
