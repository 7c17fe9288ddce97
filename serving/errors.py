"""The engine's error tree.

    ServingError
    ├── InvalidInput         the caller's request cannot be read
    │   └── InputRefused     it does not fit the model's signature
    ├── ModelRaised          the model itself failed on the input
    │   └── ModelRefused     its data or parameters do not fit the signature
    ├── Ineligible           a rule of `serving.eligibility` fails
    ├── ArtifactError        a packed model or environment cannot be used
    ├── LaunchError          a replica cannot be started
    ├── ReplicaUnavailable   no replica answers now; the same call may succeed later
    ├── Overloaded           the queue is full
    ├── DeadlineExceeded     the request ran too long
    └── NotBatchable         the model does not return one output row for each input row

Every error carries the API's word for it (`code`), whether the same call may succeed later
(`retryable`), and a message that says what to mend. Messages hold no paths and no secrets.
"""

from __future__ import annotations

from typing import ClassVar


class ServingError(Exception):
    """Anything the engine refuses or fails to do."""

    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidInput(ServingError):
    """The request body cannot be read."""

    code = "BAD_REQUEST"
    status = 400


class InputRefused(InvalidInput):
    """The request does not fit the model's signature; the code is MLflow's."""

    code = "INVALID_PARAMETER_VALUE"


class ModelRaised(ServingError):
    """The model raised on this input; by the contract that is the caller's 400, never a 500."""

    code = "BAD_REQUEST"
    status = 400


class ModelRefused(ModelRaised):
    """The model's process found that data or parameters do not fit the signature."""

    code = "INVALID_PARAMETER_VALUE"


class Ineligible(ServingError):
    """Throughput optimization was asked for where a rule fails."""

    code = "INVALID_PARAMETER_VALUE"
    status = 400


class ArtifactError(ServingError):
    """A packed model or environment is unsafe, incomplete or made for another machine.

    `reason_code` is a stable word (such as `UNSAFE_TAR`, `PYTHON_NOT_AVAILABLE`,
    `ENVIRONMENT_DOES_NOT_IMPORT`).
    """

    code = "INVALID_STATE"
    status = 400

    def __init__(self, reason_code: str, message: str) -> None:
        super().__init__(message)
        self.reason_code = reason_code


class LaunchError(ServingError):
    """A replica could not be started or did not become ready in time."""


class ReplicaUnavailable(ServingError):
    """No replica answers now; the same call may succeed later."""

    code = "TEMPORARILY_UNAVAILABLE"
    status = 503
    retryable = True


class Overloaded(ServingError):
    """The served entity's queue is full."""

    code = "REQUEST_LIMIT_EXCEEDED"
    status = 429
    retryable = True


class DeadlineExceeded(ServingError):
    """The request ran longer than the endpoint allows."""

    code = "DEADLINE_EXCEEDED"
    status = 504


class NotBatchable(ServingError):
    """The model does not return one output row for each input row."""

    code = "INVALID_STATE"
    status = 400
