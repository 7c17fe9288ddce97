"""An endpoint's Overview, Events and Settings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from portal.accounts.groups import known_names
from portal.endpoints import reading
from portal.endpoints.forms.choices import has_gpu
from portal.endpoints.forms.fields import EndpointFields
from portal.endpoints.forms.parse import parse
from portal.endpoints.forms.summary import create_body
from portal.endpoints.models import (
    Deployment,
    DeploymentStep,
    Endpoint,
    EndpointConfig,
    Replica,
    ServedEntity,
)
from portal.endpoints.pages.common import Opened, live, open_endpoint, page
from portal.endpoints.pages.limits import form_values, limit_rows
from portal.endpoints.reading import TritonView
from portal.endpoints.realised import realised_batching
from portal.endpoints.states import (
    ConfigUpdate,
    DeploymentState,
    PermissionLevel,
    ReplicaState,
    StepState,
    TritonStatus,
)
from portal.ui.sharing import Share
from portal.ui.tones import Chip, Tone
from serving.permissions import Action
from serving.workloads import WORKLOAD_TYPES

PENDING_TITLES = {
    ConfigUpdate.UPDATE_FAILED: "Configuration that failed",
    ConfigUpdate.UPDATE_CANCELED: "Configuration that was canceled",
}
MOVING_S = 3
QUIET_S = 30
LAST_EVENTS = 5
EVENTS_A_PAGE = 50
STEP_ICONS = {
    StepState.WAITING: "idle",
    StepState.RUNNING: "busy",
    StepState.DONE: "check-circle",
    StepState.FAILED: "cross-circle",
    StepState.SKIPPED: "idle",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A step of a deployment as the step line shows it."""

    step: DeploymentStep
    icon: str
    seconds: float | None

    @property
    def state(self) -> str:
        """For the stylesheet."""
        return self.step.state.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    replica: Replica
    chip: Chip
    device: str


DEVICES = {"cpu": "CPU", "cpu-emulation": "CPU emulation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPart:
    """A served entity with what is seen of it."""

    entity: ServedEntity
    chip: Chip
    workload: str
    triton: TritonView
    replicas: tuple[ReplicaRow, ...]
    is_emulated: bool
    batched: str  # one sentence on realised batching; empty off Triton

    @property
    def is_active(self) -> bool:
        return self.triton.status == TritonStatus.ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPart:
    """A config: the active one, or the one that is rolling out or failed to."""

    config: EndpointConfig
    title: str
    entities: tuple[EntityPart, ...]


@page
@require_safe
def overview(request: HttpRequest, name: str) -> HttpResponse:
    """The first tab."""
    opened = open_endpoint(request, name)
    context = _overview(opened) | {"tab": "overview", "seen": ""}
    return render(request, "endpoints/endpoint.html", context)


@page
@require_safe
def status(request: HttpRequest, name: str) -> HttpResponse:
    """The live part of the overview alone, with the head of the page."""
    opened = open_endpoint(request, name)
    return live(request, "endpoints/_status.html", _overview(opened) | {"is_alone": True})


def _overview(opened: Opened) -> dict[str, object]:
    endpoint = opened.endpoint
    deployment = reading.current_deployment(endpoint)
    configs = _configs(endpoint)
    is_moving = _is_moving(opened, deployment, configs)
    is_settled = not is_moving and not any(part.replicas for c in configs for part in c.entities)
    return {
        "opened": opened,
        "endpoint": endpoint,
        "deployment": deployment,
        "is_under_way": reading.is_under_way(deployment),
        "has_failed": deployment is not None and deployment.state == DeploymentState.FAILED,
        "steps": _steps(deployment),
        "deployment_seconds": (
            _seconds(deployment.started_at, deployment.ended_at)
            if deployment and deployment.ended_at
            else None
        ),
        "configs": configs,
        "has_several": sum(len(c.entities) for c in configs) > 1,
        "events": endpoint.events.select_related("actor")[:LAST_EVENTS],
        "poll_s": MOVING_S if is_moving else 0 if is_settled else QUIET_S,
        "announcement": _announcement(opened, configs),
        "is_bad": any(
            chip and chip.tone is Tone.BAD for chip in (opened.ready_chip, opened.update_chip)
        ),
    }


def _configs(endpoint: Endpoint) -> list[ConfigPart]:
    """The active config, then the one that is not: rolling out, or the failed last try."""
    found = []
    if endpoint.active_config:
        found.append(_config(endpoint.active_config, "Active configuration"))
    if endpoint.pending_config and endpoint.pending_config_id != endpoint.active_config_id:
        title = PENDING_TITLES.get(ConfigUpdate(endpoint.config_update), "Pending configuration")
        found.append(_config(endpoint.pending_config, title))
    return found


def _config(config: EndpointConfig, title: str) -> ConfigPart:
    is_gpu_here = has_gpu()
    parts = []
    for entity in config.entities.select_related("model_version__model"):
        kind = WORKLOAD_TYPES.get(entity.workload_type)
        batched = realised_batching(entity)
        parts.append(
            EntityPart(
                entity=entity,
                chip=reading.entity_chip(entity),
                workload=kind.label if kind else entity.workload_type,
                triton=reading.triton_view(entity),
                replicas=tuple(_replica(r) for r in reading.live_replicas(entity)),
                is_emulated=bool(kind and kind.is_gpu and not is_gpu_here),
                batched=batched.sentence if batched else "",
            )
        )
    return ConfigPart(config=config, title=title, entities=tuple(parts))


def _replica(replica: Replica) -> ReplicaRow:
    device = DEVICES.get(replica.device) or replica.device.replace("cuda:", "GPU ")
    return ReplicaRow(replica=replica, chip=reading.replica_chip(replica), device=device)


def _steps(deployment: Deployment | None) -> list[StepLine]:
    if deployment is None:
        return []
    now = timezone.now()
    return [
        StepLine(
            step=step,
            icon=STEP_ICONS[StepState(step.state)],
            seconds=_seconds(step.started_at, step.ended_at or now),
        )
        for step in deployment.steps.all()
    ]


def _seconds(start: datetime | None, end: datetime) -> float | None:
    return None if start is None else max(0.0, (end - start).total_seconds())


def _is_moving(opened: Opened, deployment: Deployment | None, configs: list[ConfigPart]) -> bool:
    """Whether something is on its way, so that looking again soon is worth it."""
    if opened.is_updating or reading.is_under_way(deployment):
        return True
    restless = {
        ReplicaState.LAUNCHING,
        ReplicaState.STARTING,
        ReplicaState.DRAINING,
        ReplicaState.CRASHED,
    }
    rows = (row for c in configs for part in c.entities for row in part.replicas)
    return any(row.replica.state in restless for row in rows)


def _announcement(opened: Opened, configs: list[ConfigPart]) -> str:
    """What a screen reader hears when it changes."""
    words = [opened.ready_chip.label]
    if opened.update_chip:
        words.append(opened.update_chip.label)
    words += [part.triton.chip.label for c in configs[:1] for part in c.entities]
    return f"{opened.endpoint.name}: {', '.join(words)}."


# ---------------------------------------------------------------- events


@page
@require_safe
def events(request: HttpRequest, name: str) -> HttpResponse:
    """The endpoint's time line, newest first; `?event=` is a permalink."""
    opened = open_endpoint(request, name)
    kind, text = request.GET.get("kind", ""), request.GET.get("q", "").strip()[:100]
    found = opened.endpoint.events.select_related("actor", "deployment__config")
    kinds = sorted(opened.endpoint.events.order_by().values_list("kind", flat=True).distinct())
    if kind in kinds:
        found = found.filter(kind=kind)
    if text:
        found = found.filter(Q(message__icontains=text) | Q(actor__username__icontains=text))
    marked = request.GET.get("event", "")
    number = request.GET.get("page", "1")
    if marked.isdigit() and "page" not in request.GET:
        newer = found.filter(pk__gt=int(marked)).count()
        number = str(newer // EVENTS_A_PAGE + 1)
    context = {
        "opened": opened,
        "endpoint": opened.endpoint,
        "tab": "events",
        "page": Paginator(found, EVENTS_A_PAGE).get_page(number),
        "kinds": {k: k.replace("_", " ").capitalize() for k in kinds},
        "kind": kind if kind in kinds else "",
        "text": text,
        "marked": int(marked) if marked.isdigit() else None,
    }
    return render(request, "endpoints/events.html", context)


# ---------------------------------------------------------------- settings


@page
@require_safe
def settings_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Config as JSON, permissions, tags, and what hurts."""
    return show_settings(request, open_endpoint(request, name))


def show_settings(
    request: HttpRequest, opened: Opened, *, share: Share | None = None, status: int = 200
) -> HttpResponse:
    """The Settings tab; `share` is a change of permissions that was refused."""
    endpoint = opened.endpoint
    config = endpoint.active_config or endpoint.pending_config
    fields = EndpointFields.of(endpoint, config)
    body = create_body(parse(fields)[0]) if config else {}
    context = {
        "opened": opened,
        "endpoint": endpoint,
        "tab": "settings",
        "config": config,
        "config_json": json.dumps(body, indent=2, ensure_ascii=False),
        "tags": endpoint.tags.all(),
        "permissions": endpoint.permissions.select_related("user").order_by("pk"),
        "levels": PermissionLevel.choices,
        "share": share or Share(level=PermissionLevel.CAN_QUERY),
        "known": known_names() if opened.may[Action.CHANGE_PERMISSIONS] else None,
        "limits": limit_rows(endpoint),
        "limit_values": form_values(endpoint),
    }
    return render(request, "endpoints/settings.html", context, status=status)
