"""What only the gateway refuses; the rest is in `serving.errors`.

ServingError
├── Unauthenticated        no token, or one that is not (or no longer) known
├── NotPermitted           the endpoint is visible, but not to be queried
├── EndpointDoesNotExist   unknown, or not visible to the caller
├── UnknownPath            no such path with this method
├── EndpointStopped        a person stopped the endpoint
├── RateLimited            a rate limit of the endpoint is used up for now
└── ReplicaUnavailable
    └── ReplicaBroke       it ended or hung up while it had the request
"""

from __future__ import annotations

from serving.errors import ReplicaUnavailable, ServingError


class Unauthenticated(ServingError):
    """No token, or one that is not known."""

    code = "UNAUTHENTICATED"
    status = 401


class NotPermitted(ServingError):
    """The caller may see the endpoint but not query it."""

    code = "PERMISSION_DENIED"
    status = 403


class EndpointDoesNotExist(ServingError):
    """There is no such endpoint or served entity, or the caller may not see it."""

    code = "RESOURCE_DOES_NOT_EXIST"
    status = 404


class UnknownPath(ServingError):
    """There is no such path with this method."""

    code = "ENDPOINT_NOT_FOUND"
    status = 404


class EndpointStopped(ServingError):
    """A person stopped the endpoint."""

    code = "INVALID_STATE"
    status = 400


class RateLimited(ServingError):
    """A rate limit of the endpoint is used up; there is room again in `retry_after_s`."""

    code = "REQUEST_LIMIT_EXCEEDED"
    status = 429
    retryable = True

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ReplicaBroke(ReplicaUnavailable):
    """The replica ended or hung up while it had the request: it may have worked on it."""


def unexpected(request_id: str) -> ServingError:
    """What a caller is told of a fault of ours."""
    return ServingError(f"Sorry, something went wrong here. Please report request id {request_id}.")
