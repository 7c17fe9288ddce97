"""How a deployment's step ends, and what interrupts it."""

from __future__ import annotations

from dataclasses import dataclass

from portal.endpoints.models import ServedEntity

POLL_S = 0.5
"""How often a deployment looks again while it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The step is done."""

    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """There was nothing to do."""

    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The step waits for something outside; ask again after `again_s`."""

    message: str
    again_s: float = POLL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class FellBack:
    """An entity's backend became STANDARD: launch it anew."""

    message: str


Outcome = Done | Skipped | Waiting | FellBack


class StepFailed(Exception):
    """The deployment cannot succeed.

    Attributes:
        code: A stable word.
        message: What failed and what to do.
        entity: The served entity that failed; None when none is to blame.
        log_excerpt: The last log lines of what failed.
    """

    def __init__(
        self, code: str, message: str, *, entity: ServedEntity | None = None, log_excerpt: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.entity = entity
        self.log_excerpt = log_excerpt
