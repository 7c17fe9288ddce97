"""The one shape of an error, and what each status means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rest_framework import serializers

from portal.rest import ApiError
from serving.errors import ServingError

ERRORS = {
    400: "The call cannot be understood, a value is wrong, or the state forbids it.",
    401: "There is no token, or it is unknown, expired or revoked.",
    403: "The caller may see the object, but not do this.",
    404: "There is no such object, or the caller may not see it.",
    409: "It exists already, or another change is running.",
    412: "The file changed since the given time.",
    429: "Too many calls; Retry-After says in how many seconds to come again.",
    503: "Not ready now; Retry-After says in how many seconds to come again.",
    504: "The request ran longer than the endpoint allows.",
}
WITH_RETRY_AFTER = {429, 503}


def error_codes() -> list[str]:
    """Every `error_code` that there is."""
    found = {kind.code for root in (ApiError, ServingError) for kind in _below(root)}
    return sorted(found)


def _below(kind: Any) -> Iterator[Any]:
    yield kind
    for child in kind.__subclasses__():
        yield from _below(child)


class Error(serializers.Serializer[Any]):
    """Every answer that is not 2xx."""

    error_code = serializers.CharField(help_text="The stable word that clients choose by.")
    message = serializers.CharField(help_text="What failed, the value and the limit, what to do.")
    details = serializers.ListField(
        child=serializers.DictField(),
        help_text="Each problem with its `field` and `message`, where fields are wrong.",
    )
    request_id = serializers.CharField(help_text="To report with a fault; also X-Request-Id.")
