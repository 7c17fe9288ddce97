"""The Batching tab: what is in force and why, what was realised, what was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from portal.endpoints import charts, reading, services
from portal.endpoints.forms.batching import LABELS, as_text
from portal.endpoints.models import BackendDecision, Deployment, ServedEntity
from portal.endpoints.pages.common import Opened, live, open_endpoint, page, user_of
from portal.endpoints.reading import TritonView
from portal.endpoints.realised import realised_batching
from portal.endpoints.routes import latest_decision
from portal.endpoints.states import StepName, StepState
from serving.batching import Realised, number
from serving.permissions import Action
from serving.spec import Backend, from_json
from serving.tuning.policy import Progress
from serving.tuning.profile import ProbeResult, Profile, SweepStep, Trial

MOVING_S = 3
LIVE_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """A batching setting in force, where it came from, and why."""

    key: str
    label: str
    value: str
    source: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileView:
    """The measurements behind what is in force.

    Attributes:
        is_outdated: Somebody asked for new ones.
        sweep: The chart of the curve as JSON; `reading` is it in words.
    """

    measured: Profile
    is_outdated: bool
    measured_at: datetime
    device: str
    probe: str
    sweep: str
    reading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """A served entity whose model is being measured now."""

    entity: ServedEntity
    message: str
    steps: Sequence[SweepStep]
    trials: Sequence[Trial]
    sweep: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityBatching:
    """A served entity on the tab.

    Attributes:
        realised: None off Triton, and until a replica has said what it batched.
        distribution: The chart of `realised` as JSON, as is `split`.
    """

    entity: ServedEntity
    triton: TritonView
    is_on_triton: bool
    realised: Realised | None
    settings: Sequence[SettingRow]
    profile: ProfileView | None
    distribution: str
    split: str


@page
@require_safe
def batching(request: HttpRequest, name: str) -> HttpResponse:
    """The tab."""
    opened = open_endpoint(request, name)
    context = _context(opened) | {"tab": "batching", "seen": ""}
    return render(request, "endpoints/batching.html", context)


@page
@require_safe
def batching_status(request: HttpRequest, name: str) -> HttpResponse:
    """Its live part alone."""
    return live(request, "endpoints/_batching.html", _context(open_endpoint(request, name)))


def _context(opened: Opened) -> dict[str, object]:
    endpoint = opened.endpoint
    deployment = reading.current_deployment(endpoint)
    is_moving = opened.is_updating or reading.is_under_way(deployment)
    config = endpoint.active_config or endpoint.pending_config
    entities = config.entities.select_related("model_version__model") if config else ()
    parts = [_part(entity) for entity in entities]
    is_live = any(part.is_on_triton for part in parts) and not endpoint.is_stopped
    return {
        "opened": opened,
        "endpoint": endpoint,
        "config": config,
        "parts": parts,
        "measuring": _measuring(deployment),
        "has_several": len(parts) > 1,
        "poll_s": MOVING_S if is_moving else LIVE_S if is_live else 0,
    }


def _part(entity: ServedEntity) -> EntityBatching:
    decision = latest_decision(entity)
    is_on_triton = decision is not None and decision.backend == Backend.TRITON
    found = realised_batching(entity)
    has_rows = found is not None and found.rows > 0
    return EntityBatching(
        entity=entity,
        triton=reading.triton_view(entity),
        is_on_triton=is_on_triton,
        realised=found,
        settings=_settings(entity),
        profile=_profile(decision) if is_on_triton else None,
        distribution=(
            json.dumps(charts.distribution(found.sizes, found.max_batch_size))
            if found and has_rows
            else ""
        ),
        split=json.dumps(charts.time_split(found)) if found and has_rows else "",
    )


def _settings(entity: ServedEntity) -> list[SettingRow]:
    """What the newest decision put in force, in the form's order."""
    in_force = {field.key: field for field in reading.batching_in_force(entity)}
    return [
        SettingRow(
            key=key,
            label=label,
            value=as_text(in_force[key].value),
            source=in_force[key].source.capitalize(),
            reason=in_force[key].reason,
        )
        for key, label in LABELS.items()
        if key in in_force
    ]


def _profile(decision: BackendDecision | None) -> ProfileView | None:
    measured = services.profile_of(decision)
    if decision is None or decision.profile is None or measured is None:
        return None
    return ProfileView(
        measured=measured,
        is_outdated=decision.profile.is_outdated,
        measured_at=datetime.fromtimestamp(measured.measured_at, UTC),
        device=device_words(measured.device),
        probe=probe_words(measured.probe),
        sweep=json.dumps(charts.sweep(measured.steps, measured.knee_rows)),
        reading=_reading(measured),
    )


def device_words(key: str) -> str:
    """A device as a profile names it, for people: "CPU emulation, 2 cores", "NVIDIA H200"."""
    kind, _, what = key.partition(":")
    kinds = {"cpu": "CPU", "cpu-emulation": "CPU emulation"}
    return f"{kinds[kind]}, {what}" if kind in kinds else what or key


def probe_words(probe: ProbeResult | None) -> str:
    """What was tried before anything was batched, in a sentence or two."""
    if probe is None:
        return ""
    words = {
        True: f"{probe.rows_checked} rows in one call were answered as each alone.",
        False: "Rows of one call change each other's answers.",
        None: "Whether the rows of a call change each other's answers could not be checked.",
    }[probe.is_row_independent]
    if probe.speedup_of_8 is not None:
        words += f" 8 rows in one call took {8 / probe.speedup_of_8:.1f} times as long as 1."
    return words


def _reading(measured: Profile) -> str:
    """The curve in a sentence, for those who do not see it."""
    first = measured.steps[0]
    knee = next((step for step in measured.steps if step.rows == measured.knee_rows), first)
    return (
        f"From {number(first.rows_per_s)} rows/s with {first.rows} row a call to"
        f" {number(knee.rows_per_s)} with {knee.rows}, the knee."
    )


# ---------------------------------------------------------------- while it is measured


def _measuring(deployment: Deployment | None) -> list[Measuring]:
    """What the deployment under way has measured so far."""
    if deployment is None or not reading.is_under_way(deployment):
        return []
    step = deployment.steps.filter(name=StepName.PROFILE, state=StepState.RUNNING).first()
    if step is None:
        return []
    found = []
    for decision in deployment.decisions.filter(backend=Backend.TRITON).select_related("entity"):
        if "outcome" in decision.profiling:
            continue
        progress = _progress(decision)
        steps = progress.sweep.steps if progress and progress.sweep else ()
        found.append(
            Measuring(
                entity=decision.entity,
                message=step.message,
                steps=steps,
                trials=progress.trials if progress else (),
                sweep=json.dumps(charts.sweep(steps, None)) if steps else "",
            )
        )
    return found


def _progress(decision: BackendDecision) -> Progress | None:
    kept = decision.profiling.get("progress")
    try:
        return from_json(Progress, json.dumps(kept)) if kept else None
    except ValueError:  # another release of Shoal wrote it
        return None


# ---------------------------------------------------------------- measuring again


@page
@require_http_methods(["GET", "POST"])
def measure_again(request: HttpRequest, name: str) -> HttpResponse:
    """Ask, and with POST let the next deployment measure anew."""
    opened = open_endpoint(request, name, action=Action.MEASURE_AGAIN)
    wanted = request.POST.get("entity", request.GET.get("entity", ""))
    config = opened.endpoint.active_config or opened.endpoint.pending_config
    entity = config.entities.filter(name=wanted).first() if config else None
    if entity is None:
        raise Http404("There is no such served entity.")
    if request.method == "POST":
        services.measure_again(user_of(request), entity)
        messages.success(request, f"{entity.name} is measured again with the next deployment.")
        return redirect("endpoint-batching", name)
    context = {"opened": opened, "endpoint": opened.endpoint, "entity": entity}
    return render(request, "endpoints/measure.html", context)
