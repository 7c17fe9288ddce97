"""Find rows of the audit log: filters, pages by cursor, CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import models
from django.utils.dateparse import parse_date, parse_datetime

from portal.audit.models import AuditEvent
from portal.audit.states import Action, ObjectKind

MAX_CSV_ROWS = 50_000
CSV_COLUMNS = (
    *("time", "actor", "via", "token_id", "address", "request_id"),
    *("action", "object_kind", "object_name", "outcome", "detail"),
)
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins so for a formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows; what is empty filters nothing. `until` is not included."""

    actor: str = ""
    action: str = ""
    object_kind: str = ""
    object_name: str = ""  # a part of it
    since: datetime | None = None
    until: datetime | None = None

    def __bool__(self) -> bool:
        return self != Filter()


def read_filter(values: Mapping[str, str]) -> tuple[Filter, list[str]]:
    """The page's filter from a query string, and what in it could not be understood."""
    problems: list[str] = []
    since = _moment(values.get("since", ""), problems)
    until = _moment(values.get("until", ""), problems, is_end=True)
    action = values.get("action", "")
    kind = values.get("kind", "")
    if action and action not in Action.values:
        problems.append(f"There is no action “{action[:32]}”.")
        action = ""
    if kind and kind not in ObjectKind.values:
        problems.append(f"There is no kind of object “{kind[:32]}”.")
        kind = ""
    found = Filter(
        actor=_text(values.get("actor", "")),
        action=action,
        object_kind=kind,
        object_name=_text(values.get("object", "")),
        since=since,
        until=until,
    )
    return found, problems


def _text(value: str) -> str:
    return value.strip().replace("\x00", "")[:300]


def _moment(text: str, problems: list[str], *, is_end: bool = False) -> datetime | None:
    """A day (its begin, or as an end the next day's) or a moment; UTC where no zone is given."""
    text = text.strip()
    if not text:
        return None
    try:
        day, moment = parse_date(text), parse_datetime(text)
        if day is not None:
            moment = datetime(day.year, day.month, day.day, tzinfo=UTC)
            return moment + timedelta(days=1) if is_end else moment
        if moment is not None:
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    problems.append(f"“{text[:32]}” is not a day. Write it as 2026-01-31.")
    return None


def matching(wanted: Filter) -> models.QuerySet[AuditEvent]:
    """The rows that match, newest first."""
    conditions: dict[str, object] = {
        "actor": wanted.actor,
        "action": wanted.action,
        "object_kind": wanted.object_kind,
        "object_name__icontains": wanted.object_name,
        "at__gte": wanted.since,
        "at__lt": wanted.until,
    }
    return AuditEvent.objects.filter(
        **{name: value for name, value in conditions.items() if value not in ("", None)}
    )


def page_of(
    rows: models.QuerySet[AuditEvent], *, before: int | None, size: int
) -> tuple[list[AuditEvent], int | None]:
    """A page of rows older than row `before`, and the cursor of the next page; None at the end.

    A cursor is a row's number, so pages neither repeat nor leave out what is written meanwhile.
    """
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows[: size + 1])
    return found[:size], found[size - 1].pk if len(found) > size else None


def to_csv(rows: Iterable[AuditEvent]) -> str:
    """Rows as CSV that is safe to open in a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        cells = [
            *(row.at.astimezone(UTC).isoformat(timespec="milliseconds"), row.actor, row.via),
            *(row.token_id, row.address, row.request_id, row.action, row.object_kind),
            *(row.object_name, row.outcome, json.dumps(row.detail, ensure_ascii=False)),
        ]
        writer.writerow([f"'{c}" if c.startswith(FORMULA_STARTS) else c for c in cells])
    return out.getvalue()
