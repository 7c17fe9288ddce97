"""Who may do what on an endpoint: the one table behind the API, the pages and the gateway.

A caller has at most one level on an endpoint, and each level includes those below it. What callers
have no level on is not there for them; what they see but may not do is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum


class Level(StrEnum):
    """Levels in the API's words, the lowest first."""

    CAN_VIEW = "CAN_VIEW"
    CAN_QUERY = "CAN_QUERY"
    CAN_MANAGE = "CAN_MANAGE"


class Action(StrEnum):
    """What can be done to an endpoint that is there."""

    SEE = "see"
    READ_LOGS = "read_logs"
    READ_METRICS = "read_metrics"
    READ_PERMISSIONS = "read_permissions"
    QUERY = "query"
    UPDATE_CONFIG = "update_config"
    UPDATE_DESCRIPTION = "update_description"
    UPDATE_TAGS = "update_tags"
    UPDATE_NOTIFICATIONS = "update_notifications"
    MEASURE_AGAIN = "measure_again"  # drop a profile, so that the next deployment measures
    UPDATE_LIMITS = "update_limits"  # rate limits and the rest of the AI gateway
    RETRY = "retry"
    CANCEL = "cancel"
    STOP = "stop"
    START = "start"
    DELETE = "delete"
    CHANGE_PERMISSIONS = "change_permissions"


LEAST_LEVEL: Mapping[Action, Level] = {
    Action.SEE: Level.CAN_VIEW,
    Action.READ_LOGS: Level.CAN_VIEW,
    Action.READ_METRICS: Level.CAN_VIEW,
    Action.READ_PERMISSIONS: Level.CAN_VIEW,
    Action.QUERY: Level.CAN_QUERY,
    Action.UPDATE_CONFIG: Level.CAN_MANAGE,
    Action.UPDATE_DESCRIPTION: Level.CAN_MANAGE,
    Action.UPDATE_TAGS: Level.CAN_MANAGE,
    Action.UPDATE_NOTIFICATIONS: Level.CAN_MANAGE,
    Action.MEASURE_AGAIN: Level.CAN_MANAGE,
    Action.UPDATE_LIMITS: Level.CAN_MANAGE,
    Action.RETRY: Level.CAN_MANAGE,
    Action.CANCEL: Level.CAN_MANAGE,
    Action.STOP: Level.CAN_MANAGE,
    Action.START: Level.CAN_MANAGE,
    Action.DELETE: Level.CAN_MANAGE,
    Action.CHANGE_PERMISSIONS: Level.CAN_MANAGE,
}
"""The table."""

RANK: Mapping[str, int] = {level.value: rank for rank, level in enumerate(Level, start=1)}


class Verdict(StrEnum):
    """What becomes of a call: it passes, is refused (403), or finds nothing there (404)."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    HIDDEN = "hidden"


def highest(levels: Iterable[str]) -> Level | None:
    """The highest of these levels; words that are none count for nothing."""
    known = [level for level in levels if level in RANK]
    return Level(max(known, key=RANK.__getitem__)) if known else None


def judge(level: str | None, action: Action) -> Verdict:
    """What becomes of `action` at `level`; None is no level at all."""
    rank = RANK.get(level or "", 0)
    if rank < RANK[LEAST_LEVEL[Action.SEE]]:
        return Verdict.HIDDEN
    return Verdict.ALLOWED if rank >= RANK[LEAST_LEVEL[action]] else Verdict.REFUSED


def allowed(level: str | None) -> frozenset[Action]:
    """Everything that `level` may do."""
    return frozenset(action for action in Action if judge(level, action) is Verdict.ALLOWED)
