"""The list of endpoints: filters and sort in the URL, bad states first, alive while things move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.accounts.models import User
from portal.endpoints import reading, services
from portal.endpoints.forms import EndpointFields, EntityFields, parse
from portal.endpoints.forms.summary import api_curl, create_body
from portal.endpoints.models import Endpoint, EndpointConfig, ServedEntity
from portal.endpoints.pages.common import base_url, live, page, user_of
from portal.endpoints.states import ConfigUpdate, Ready, ReplicaState, TritonStatus
from portal.ui.tones import Chip, Tone
from serving.permissions import Action, allowed
from serving.workloads import WORKLOAD_TYPES

MOVING_S = 3
QUIET_S = 30

STATES: dict[str, tuple[str, Q]] = {
    "failed": ("Update failed", Q(config_update=ConfigUpdate.UPDATE_FAILED)),
    "not-ready": ("Not ready", Q(ready=Ready.NOT_READY, is_stopped=False)),
    "updating": ("Updating", Q(config_update=ConfigUpdate.IN_PROGRESS)),
    "ready": ("Ready", Q(ready=Ready.READY)),
    "stopped": ("Stopped", Q(is_stopped=True)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityCell:
    """A served entity in the list."""

    entity: ServedEntity
    triton: Chip
    triton_message: str
    is_triton_active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRow:
    """An endpoint in the list."""

    endpoint: Endpoint
    ready_chip: Chip
    update_chip: Chip | None
    entities: tuple[EntityCell, ...]
    replicas_ready: int
    replicas_wanted: int
    may_edit: bool
    may_delete: bool

    @property
    def badness(self) -> int:
        """Higher is worse: what needs somebody stands first."""
        tones = [chip.tone for chip in (self.ready_chip, self.update_chip) if chip]
        tones += [cell.triton.tone for cell in self.entities if cell.triton.tone is Tone.BAD]
        order = (Tone.GOOD, Tone.IDLE, Tone.BUSY, Tone.WARN, Tone.BAD)
        return max(order.index(tone) for tone in tones)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What the URL asks for; unknown words count as absent."""

    state: str = ""
    workload: str = ""
    mine: bool = False
    text: str = ""
    sort: str = "state"

    @classmethod
    def read(cls, query: QueryDict) -> Filters:
        """From the query string."""
        state, workload = query.get("state", ""), query.get("workload", "")
        sort = query.get("sort", "state")
        return cls(
            state=state if state in STATES else "",
            workload=workload if workload in WORKLOAD_TYPES else "",
            mine=query.get("mine") == "1",
            text=query.get("q", "").strip()[:100],
            sort=sort if sort.removeprefix("-") in SORTS else "state",
        )

    @property
    def is_any(self) -> bool:
        return bool(self.state or self.workload or self.mine or self.text)

    @property
    def in_words(self) -> str:
        """The filters as a person would say them."""
        words = []
        if self.state:
            words.append(f"state {STATES[self.state][0].lower()}")
        if self.workload:
            words.append(f"compute type {self.workload}")
        if self.mine:
            words.append("created by you")
        if self.text:
            words.append(f"“{self.text}” in the name or model")
        return ", ".join(words)

    def query(self, **changed: object) -> str:
        """The query string, with some of it changed; defaults are left out."""
        values: dict[str, object] = {
            "state": self.state,
            "workload": self.workload,
            "mine": "1" if self.mine else "",
            "q": self.text,
            "sort": "" if self.sort == "state" else self.sort,
        }
        found = {key: str(value) for key, value in (values | changed).items() if value}
        return f"?{urlencode(found)}" if found else ""

    def apply(self, endpoints: QuerySet[Endpoint], user: User) -> QuerySet[Endpoint]:
        """The endpoints that match."""
        if self.state:
            endpoints = endpoints.filter(STATES[self.state][1])
        configs = EndpointConfig.objects.all()
        if self.workload:
            configs = configs.filter(entities__workload_type=self.workload)
            endpoints = endpoints.filter(
                Q(active_config__in=configs) | Q(active_config=None, pending_config__in=configs)
            )
        if self.mine:
            endpoints = endpoints.filter(creator=user)
        if self.text:
            named = EndpointConfig.objects.filter(entities__entity_name__icontains=self.text)
            endpoints = endpoints.filter(
                Q(name__icontains=self.text)
                | Q(description__icontains=self.text)
                | Q(active_config__in=named)
                | Q(pending_config__in=named)
            )
        return endpoints


SORTS: dict[str, Callable[[EndpointRow], Any]] = {
    "state": lambda row: (-row.badness, row.endpoint.name),
    "name": lambda row: row.endpoint.name,
    "replicas": lambda row: (row.replicas_ready, row.endpoint.name),
    "by": lambda row: row.endpoint.changed_by.username if row.endpoint.changed_by else "",
    "changed": lambda row: row.endpoint.updated_at,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading; `href` sorts by it, empty where that makes no sense."""

    label: str
    href: str = ""
    order: str = "none"  # aria-sort
    is_number: bool = False


def _columns(filters: Filters) -> list[Column]:
    def column(label: str, key: str = "", *, is_number: bool = False) -> Column:
        if not key:
            return Column(label=label)
        up, down = filters.sort == key, filters.sort == f"-{key}"
        return Column(
            label=label,
            href=reverse("endpoints") + filters.query(sort=f"-{key}" if up else key),
            order="ascending" if up else "descending" if down else "none",
            is_number=is_number,
        )

    return [
        column("Name", "name"),
        column("State", "state"),
        column("Served entities"),
        column("Triton"),
        column("Replicas", "replicas", is_number=True),
        column("Changed by", "by"),
        column("Changed", "changed"),
    ]


def _rows(user: User, filters: Filters) -> list[EndpointRow]:
    visible = Endpoint.objects.visible_to(user).prefetch_related("permissions")
    endpoints = filters.apply(reading.with_everything(visible), user)
    rows = [_row(endpoint, user) for endpoint in endpoints]
    rows.sort(key=SORTS[filters.sort.removeprefix("-")], reverse=filters.sort.startswith("-"))
    return rows


def _row(endpoint: Endpoint, user: User) -> EndpointRow:
    config = reading.shown_config(endpoint)
    entities = list(config.entities.all()) if config else []
    views = [(entity, reading.triton_view(entity)) for entity in entities]
    replicas = [r for entity in entities for r in reading.live_replicas(entity)]
    ready_chip, update_chip = reading.endpoint_chips(endpoint)
    may = allowed(services.level_of(user, endpoint))
    return EndpointRow(
        endpoint=endpoint,
        ready_chip=ready_chip,
        update_chip=update_chip,
        entities=tuple(
            EntityCell(
                entity=entity,
                triton=view.chip,
                triton_message=view.message,
                is_triton_active=view.status == TritonStatus.ACTIVE,
            )
            for entity, view in views
        ),
        replicas_ready=sum(r.state == ReplicaState.READY for r in replicas),
        replicas_wanted=len(replicas),
        may_edit=Action.UPDATE_CONFIG in may,
        may_delete=Action.DELETE in may,
    )


def _context(request: HttpRequest) -> dict[str, object]:
    user = user_of(request)
    filters = Filters.read(request.GET)
    rows = _rows(user, filters)
    is_moving = any(row.update_chip and row.update_chip.tone is Tone.BUSY for row in rows)
    is_moving = is_moving or any(row.replicas_ready < row.replicas_wanted for row in rows)
    bad = sum(row.badness == 4 for row in rows)
    return {
        "filters": filters,
        "columns": _columns(filters),
        "rows": rows,
        "has_any": bool(rows) or filters.is_any,
        "poll_s": MOVING_S if is_moving else QUIET_S,
        "query": filters.query(),
        "bad": bad,
        "create_curl": _create_curl(request),
        "states": {key: label for key, (label, _) in STATES.items()},
        "workload_types": list(WORKLOAD_TYPES),
    }


def _create_curl(request: HttpRequest) -> str:
    """The call that creates a first endpoint, for the empty page."""
    fields = EndpointFields(
        name="my-endpoint",
        entities=(
            EntityFields(
                index=0,
                model="main.default.my_model",
                version="1",
                workload_type="GPU_SMALL",
                throughput_optimized=True,
            ),
        ),
    )
    body = create_body(parse(fields)[0])
    return api_curl("POST", f"{base_url(request)}/api/2.0/serving-endpoints", body)


@page
@require_safe
def endpoints(request: HttpRequest) -> HttpResponse:
    """Home."""
    return render(request, "endpoints/endpoints.html", _context(request) | {"seen": ""})


@page
@require_safe
def endpoint_rows(request: HttpRequest) -> HttpResponse:
    """The table alone; people who come here are sent home."""
    if "HX-Request" not in request.headers:
        return redirect("endpoints")
    return live(request, "endpoints/_rows.html", _context(request))
