"""The REST API's common ground: one error shape, one parser, no content negotiation.

Every answer that is not 2xx is `{"error_code", "message", "details", "request_id"}`. The clients
choose their exception by `error_code` and take any status outside the contract's list for a
server fault that is worth retrying for minutes, so 405, 406, 413, 415 and 422 never leave the API.
"""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from django.conf import settings
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions, serializers
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from serving.errors import ServingError

log = logging.getLogger(__name__)

MAX_JSON_DEPTH = 64
MAX_JSON_VALUES = 500_000
"""About; a small body of empty lists would take a hundred times its size and seconds to read."""


class ApiError(Exception):
    """An answer that is not 2xx; subclasses name the contract's words.

    `message` says what failed, the value and the limit, and what to do.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500
    retry_after_s = 1  # sent with 429 and 503

    def __init__(self, message: str, *, details: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = [dict(d) for d in details]


class InvalidParameterValue(ApiError):
    code = "INVALID_PARAMETER_VALUE"
    status = 400


class MalformedRequest(ApiError):
    code = "MALFORMED_REQUEST"
    status = 400


class InvalidState(ApiError):
    code = "INVALID_STATE"
    status = 400


class Unauthenticated(ApiError):
    code = "UNAUTHENTICATED"
    status = 401


class PermissionDenied(ApiError):
    code = "PERMISSION_DENIED"
    status = 403


class FeatureDisabled(ApiError):
    code = "FEATURE_DISABLED"
    status = 403


class ResourceDoesNotExist(ApiError):
    code = "RESOURCE_DOES_NOT_EXIST"
    status = 404


class NotFound(ApiError):
    """A file or a directory."""

    code = "NOT_FOUND"
    status = 404


class EndpointNotFound(ApiError):
    """An unknown API path, or a known one with another method."""

    code = "ENDPOINT_NOT_FOUND"
    status = 404


class ResourceAlreadyExists(ApiError):
    code = "RESOURCE_ALREADY_EXISTS"
    status = 409


class AlreadyExists(ApiError):
    """A file that is not to be overwritten."""

    code = "ALREADY_EXISTS"
    status = 409


class ResourceConflict(ApiError):
    code = "RESOURCE_CONFLICT"
    status = 409


class RequestLimitExceeded(ApiError):
    """Too many calls of this kind; there is room again in `retry_after_s`."""

    code = "REQUEST_LIMIT_EXCEEDED"
    status = 429

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TemporarilyUnavailable(ApiError):
    code = "TEMPORARILY_UNAVAILABLE"
    status = 503


def request_id(request: HttpRequest | Request | None) -> str:
    """The request's id: the caller's `X-Request-Id` or one made here, the same all through."""
    if request is None:
        return uuid.uuid4().hex
    http: HttpRequest = getattr(request, "_request", request)
    found = getattr(http, "shoal_request_id", None)
    if found is None:
        found = http.headers.get("X-Request-Id", "")[:64] or uuid.uuid4().hex
        http.shoal_request_id = found  # type: ignore[attr-defined]  # one id a request
    return str(found)


def error_body(
    code: str, message: str, request: HttpRequest | Request | None, details: Sequence[Any] = ()
) -> dict[str, Any]:
    """The one JSON shape of an error."""
    return {
        "error_code": code,
        "message": message,
        "details": list(details),
        "request_id": request_id(request),
    }


def error_response(error: ApiError, request: HttpRequest | None) -> JsonResponse:
    """An error as a plain Django answer, for code outside of DRF."""
    body = error_body(error.code, error.message, request, error.details)
    response = JsonResponse(body, status=error.status)
    if error.status in {429, 503}:
        response["Retry-After"] = str(error.retry_after_s)
    return response


def exception_handler(exc: Exception, context: Mapping[str, Any]) -> Response:
    """Map every exception of an API view to the one shape (DRF's `EXCEPTION_HANDLER`)."""
    request = context.get("request")
    error = _to_api_error(exc)
    if error is None:
        log.error("request %s failed", request_id(request), exc_info=exc)
        error = ApiError(
            f"Sorry, something went wrong here. Please report request id {request_id(request)}."
        )
    response = Response(
        error_body(error.code, error.message, request, error.details), status=error.status
    )
    if error.status in {429, 503}:
        response["Retry-After"] = str(error.retry_after_s)
    return response


def _from_engine(exc: ServingError) -> ApiError:
    error = ApiError(exc.message)
    error.code, error.status = exc.code, exc.status  # type: ignore[misc]  # carried over as it is
    return error


ERRORS: list[tuple[tuple[type[Exception], ...], Callable[[Any], ApiError]]] = [
    ((ApiError,), lambda exc: exc),
    ((ServingError,), _from_engine),
    (
        (exceptions.NotAuthenticated, exceptions.AuthenticationFailed),
        lambda exc: Unauthenticated(str(exc.detail)),
    ),
    (
        (exceptions.PermissionDenied, DjangoPermissionDenied),
        lambda _: PermissionDenied("You may not do this. Ask a workspace admin."),
    ),
    (
        (exceptions.ValidationError,),
        lambda exc: InvalidParameterValue(_first_message(exc.detail)),
    ),
    ((exceptions.ParseError,), lambda exc: MalformedRequest(str(exc.detail))),
    (
        (exceptions.MethodNotAllowed,),
        lambda _: EndpointNotFound("There is no such API path with this method."),
    ),
    (
        (exceptions.UnsupportedMediaType,),
        lambda _: MalformedRequest("The body is not JSON. Send Content-Type: application/json."),
    ),
    (
        (Http404, exceptions.NotFound),
        lambda _: ResourceDoesNotExist("There is no such object."),
    ),
    (
        (RequestDataTooBig,),
        lambda _: MalformedRequest("The request body is too large for this call."),
    ),
]
"""Exception classes to the error that the API answers with; the first match counts."""


def _to_api_error(exc: Exception) -> ApiError | None:
    for kinds, build in ERRORS:
        if isinstance(exc, kinds):
            return build(exc)
    return None


def _first_message(detail: Any, path: str = "") -> str:
    """DRF's nested messages as one sentence: `config.served_entities[0].name: ...`."""
    if isinstance(detail, Mapping):
        key, value = next(iter(detail.items()))
        inner = path if key == "non_field_errors" else f"{path}.{key}" if path else str(key)
        return _first_message(value, inner)
    if isinstance(detail, list):
        if detail and isinstance(detail[0], (Mapping, list)):
            index = next(i for i, item in enumerate(detail) if item)
            return _first_message(detail[index], f"{path}[{index}]")
        detail = detail[0] if detail else "invalid"
    return f"{path}: {detail}" if path else str(detail)


class JSONParser(BaseParser):
    """JSON whatever the content type says; what no database or client can hold is a 400.

    That is NaN, infinity, integers beyond 64 bits, NUL, half surrogate pairs, bytes that are not
    UTF-8, absurd depth and absurd size.
    """

    media_type = "*/*"

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Read the body as one JSON object; an empty body is an empty object."""
        raw = stream.read(settings.MAX_API_BODY_BYTES + 1)
        if len(raw) > settings.MAX_API_BODY_BYTES:
            limit = settings.MAX_API_BODY_BYTES // 2**20
            raise MalformedRequest(f"The request body is larger than {limit} MB.")
        if not raw.strip():
            return {}
        if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > MAX_JSON_VALUES:
            raise MalformedRequest("The body holds too many values.")
        try:
            value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        except UnicodeDecodeError:
            raise MalformedRequest("The body is not UTF-8.") from None
        except RecursionError:
            raise MalformedRequest("The body is nested too deeply.") from None
        except ValueError as exc:
            raise MalformedRequest(f"The body is not JSON: {exc}.") from None
        if not isinstance(value, dict):
            raise MalformedRequest("The body must be a JSON object.")
        _refuse_odd(value, depth=0)
        return value


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _refuse_odd(value: Any, *, depth: int) -> None:
    if depth > MAX_JSON_DEPTH:
        raise MalformedRequest("The body is nested too deeply.")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_odd(key, depth=depth + 1)
            _refuse_odd(item, depth=depth + 1)
    elif isinstance(value, list):
        for item in value:
            _refuse_odd(item, depth=depth + 1)
    elif problem := _problem_of(value):
        raise MalformedRequest(f"The body holds {problem}.")


def _problem_of(value: Any) -> str:
    if isinstance(value, str):
        if "\x00" in value:
            return "a NUL character"
        return "" if value.isascii() or _is_utf8(value) else "half of a surrogate pair"
    if isinstance(value, float) and math.isinf(value):
        return "a number that is too large"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "a whole number of more than 64 bits"
    return ""


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class IgnoreAccept(BaseContentNegotiation):
    """Answer JSON whatever `Accept` says: clients send several, and 406 is not in the contract."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        """The one parser."""
        return next(iter(parsers))

    def select_renderer(
        self,
        request: Request,
        renderers: Iterable[BaseRenderer],
        format_suffix: str | None = None,
    ) -> tuple[BaseRenderer, str]:
        """The one renderer."""
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class StrictIntegerField(serializers.IntegerField):
    """A JSON number without a fraction; no text, no boolean."""

    def to_internal_value(self, data: Any) -> int:
        """Refuse what DRF would convert."""
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBooleanField(serializers.BooleanField):
    """`true` or `false`; no text, no number."""

    default_error_messages = {"invalid": "Must be true or false."}

    def to_internal_value(self, data: Any) -> bool:
        """Refuse what DRF would convert."""
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


def validated(serializer_class: type[Serializer[Any]], data: Any) -> dict[str, Any]:
    """`data` through a serializer, or a 400 that names the field."""
    serializer = serializer_class(data=data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)
