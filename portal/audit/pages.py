"""The admins' page of the audit log, and its download."""

from __future__ import annotations

from django.db.models import TextChoices
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.accounts.access import admin_required
from portal.audit import reading
from portal.audit.states import OUTCOME_TONES, Action, ObjectKind, Outcome, Via
from portal.ui.tones import Chip

ROWS_A_PAGE = 50
FIELDS = ("actor", "action", "kind", "object", "since", "until")


@require_safe
@admin_required
@never_cache
def audit(request: HttpRequest) -> HttpResponse:
    """Who did what when, newest first."""
    wanted, problems = reading.read_filter(request.GET.dict())
    before = request.GET.get("before", "")
    rows, following = reading.page_of(
        reading.matching(wanted),
        before=int(before) if before.isdecimal() and len(before) < 19 else None,
        size=ROWS_A_PAGE,
    )
    asked = {name: request.GET.get(name, "") for name in FIELDS}
    kept = {name: value for name, value in asked.items() if value}
    context = {
        "rows": [
            {
                "event": row,
                "via": _label(Via, row.via),
                "action": _label(Action, row.action),
                "kind": _label(ObjectKind, row.object_kind),
                "chip": Chip(_label(Outcome, row.outcome), OUTCOME_TONES[Outcome(row.outcome)]),
            }
            for row in rows
        ],
        "asked": asked,
        "problems": problems,
        "is_filtered": bool(kept),
        "actions": Action.choices,
        "kinds": ObjectKind.choices,
        "query": urlencode(kept),
        "older": urlencode(kept | {"before": str(following)}) if following else "",
        "is_first": not before,
    }
    return render(request, "audit/audit.html", context)


def _label(words: type[TextChoices], value: str) -> str:
    """A word as people read it; one that is used no more, as it is."""
    return str(dict(words.choices).get(value, value))


@require_safe
@admin_required
@never_cache
def download(request: HttpRequest) -> HttpResponse:
    """What the filter finds, as CSV; the newest rows where there are too many."""
    wanted, _ = reading.read_filter(request.GET.dict())
    rows = reading.matching(wanted)[: reading.MAX_CSV_ROWS]
    name = f"audit-{timezone.now():%Y-%m-%dT%H%M%SZ}.csv"
    return HttpResponse(
        reading.to_csv(rows.iterator(chunk_size=2000)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
