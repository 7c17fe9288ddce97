"""Measure one entity's model: launch a replica, look at it, end it, and again with another setting.

How far that is stands in the decision's row, so that another task can go on from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

from django.conf import settings

from portal.endpoints import runtime
from portal.endpoints.batching import NodeFacts, node_facts, plan_batching
from portal.endpoints.deployment.choosing import example_of, use_defaults, use_profile, warn_of
from portal.endpoints.deployment.outcomes import Waiting
from portal.endpoints.deployment.ownership import still_ours
from portal.endpoints.deployment.replicas import (
    add_replica,
    end,
    launch,
    observe,
    profile_replica,
    wanted_count,
)
from portal.endpoints.deployment.start import cannot_start
from portal.endpoints.models import BackendDecision, Replica
from portal.endpoints.routes import batching_from_json
from portal.endpoints.services.moves import record
from portal.endpoints.services.profiles import keep_profile
from portal.endpoints.states import ReplicaState, StepName
from serving.devices import device_key
from serving.errors import NotBatchable, ServingError
from serving.example import ExampleRows
from serving.row_probe import PROBE_ROWS, probe_rows, with_times
from serving.spec import Batching, ReplicaStatus, from_json, to_json
from serving.tuning import profile as values
from serving.tuning.choice import choose, memory_bound
from serving.tuning.measure import Target, closed_loop, sweep
from serving.tuning.policy import (
    CALLERS,
    Node,
    Progress,
    Setting,
    first_setting,
    knee,
    load_for,
    next_setting,
    under_load,
)
from serving.tuning.usage import free_memory_bytes, memory_of

CALL_TIMEOUT_S = 20.0
LONGEST_PROBE_S = 8.0
LONGEST_SWEEP_S = 12.0
LONGEST_USUAL_TRIAL_S = 3.0
ALWAYS_TRIED = 2
ENDED = "It was measured."
STARTED_AGAIN = "Starting it again"  # the supervisor's words


class _Gone(Exception):
    """The deployment was canceled meanwhile, or another task works on it."""


class Measuring:
    """One entity's measurements, from where the last look left them."""

    def __init__(self, decision: BackendDecision, example: ExampleRows) -> None:
        self.decision = decision
        self.example = example
        self.facts: NodeFacts = node_facts()
        self.device = runtime.device_for(decision.entity.workload_type)
        self.device_key = device_key(self.device, cores=self.facts.cores)
        kept = decision.profiling.get("progress")
        self.progress = from_json(Progress, json.dumps(kept)) if kept else None

    def go_on(self) -> str | Waiting:
        """Launch, wait or measure; gives how it ended, when it has."""
        decision = self.decision
        measured = profile_replica(decision.deployment, decision.entity)
        if measured is None:
            setting = self._upcoming()
            if setting is None:
                return self._choose()
            measured = self._add(setting)
        alive = set(runtime.runtime().running())
        launch(measured, alive=alive)
        status = observe(measured)
        if measured.state != ReplicaState.READY or status is None or not measured.address:
            cause = cannot_start(measured, status, is_alive=measured.public_id in alive)
            if not cause and status is not None and status.restarts:
                cause = _first_failure(measured)
            if cause:
                return self._cannot_load(measured, cause)
            words = _setting_of(measured).words
            return Waiting(message=f"{decision.entity.name}: loading the model to measure {words}.")
        try:
            return self._measure(measured, status)
        except _Gone:
            return Waiting(message="The deployment has ended, or another task works on it.")

    def _upcoming(self) -> Setting | None:
        if self.progress is None or not self.progress.trials:
            return first_setting(self._node(), self._input_row_bytes())
        return next_setting(self.progress, self._node())

    def _add(self, setting: Setting) -> Replica:
        batching = Batching(
            max_batch_size=setting.max_batch_size,
            max_queue_delay_microseconds=setting.max_queue_delay_microseconds,
            instance_count=setting.instance_count,
            threads_per_instance=setting.threads_per_instance,
        )
        return add_replica(self.decision.deployment, self.decision, measured_with=batching)

    def _cannot_load(self, measured: Replica, cause: str) -> str | Waiting:
        """The first replica decides nothing: launching judges. A later one is a failed trial."""
        if self.progress is None or self.progress.sweep is None:
            end(measured, "It could not be measured.")
            why = f"The model could not be loaded to measure it: {cause}"
            return use_defaults(self.decision, why)
        self._add_trial(_failed(_setting_of(measured), f"It could not be loaded: {cause}"))
        return self._next(measured)

    def _measure(self, measured: Replica, status: ReplicaStatus) -> str | Waiting:
        if self.progress is None:
            loaded_in = (status.ready_at or time.time()) - status.started_at
            self.progress = Progress(started_at=time.time(), load_s=round(loaded_in, 1))
        target = Target(
            address=measured.address,
            example=self.example,
            server_pid=status.server_pid,
            call_timeout_s=CALL_TIMEOUT_S,
            gateways=settings.WEB_WORKERS,
        )
        setting = _setting_of(measured)
        try:
            self._look_at_model(target, setting)
        except NotBatchable as exc:
            return self._not_batchable(measured, exc.message)
        except ServingError as exc:
            self._beat()
            end(measured, "It could not be measured.")
            return use_defaults(self.decision, f"The model could not be measured: {exc.message}")
        self._try(target, setting)
        return self._next(measured)

    def _look_at_model(self, target: Target, setting: Setting) -> None:
        """The probe and the sweep, on the first replica."""
        progress, budget_s = self._seen(), settings.PROFILE_BUDGET_S
        if progress.probe is None:
            self._beat("checking that rows may share a call")
            probe = probe_rows(
                address=target.address,
                example=self.example,
                most_rows=setting.max_batch_size,
                limit_s=min(LONGEST_PROBE_S, budget_s / 4),
                call_timeout_s=CALL_TIMEOUT_S,
            )
            self._keep(replace(progress, probe=probe))
        if self._seen().sweep is None:
            self._beat("measuring batch sizes")
            found = sweep(
                target,
                most_rows=setting.max_batch_size,
                limit_s=min(LONGEST_SWEEP_S, budget_s / 4),
            )
            held = memory_of(target.server_pid, self.device)
            self._keep(
                replace(
                    self._seen(),
                    probe=self._with_times(found.steps),
                    sweep=replace(found, memory_bytes=held),
                )
            )

    def _with_times(self, steps: Sequence[values.SweepStep]) -> values.ProbeResult | None:
        """The probe's result with the sweep's times, which many runs are behind."""
        probe, took_ms = self._seen().probe, {step.rows: step.latency_ms for step in steps}
        if probe is None or PROBE_ROWS not in took_ms:
            return probe
        return with_times(probe, took_ms[1], took_ms[PROBE_ROWS])

    def _try(self, target: Target, setting: Setting) -> None:
        """A closed loop of callers against this setting."""
        found = self._seen().sweep
        for_s = load_for(found, self._trial_s()) if found else None
        if found is None or for_s is None:
            words = f"A round of {CALLERS} callers takes too long to measure."
            self._keep(replace(self._seen(), ended_because=words))
            return
        setting = under_load(setting, found)
        self._beat(f"measuring {setting.words} under {CALLERS} callers")
        try:
            self._add_trial(closed_loop(target, setting, callers=CALLERS, for_s=for_s))
        except ServingError as exc:
            self._add_trial(_failed(setting, exc.message))

    def _next(self, measured: Replica) -> str | Waiting:
        """Begin the next setting where there is one and time for it; else choose."""
        progress, setting = self._seen(), next_setting(self._seen(), self._node())
        if setting is not None and not self._has_time():
            words = (
                f"Loading the model takes {progress.load_s:.0f} s, for which the time for "
                f"measuring ({settings.PROFILE_BUDGET_S} s) left no room."
            )
            self._keep(replace(progress, ended_because=words))
            setting = None
        self._beat()
        end(measured, ENDED)
        if setting is None:
            return self._choose()
        self._add(setting)
        return self.go_on()

    def _has_time(self) -> bool:
        """A second setting is always tried, unless loading alone takes longer than measuring may.

        It is the one that decides most, and a model that loads slowly would else never get it.
        """
        progress, budget_s = self._seen(), settings.PROFILE_BUDGET_S
        if len(progress.trials) < ALWAYS_TRIED:
            return progress.load_s <= budget_s
        needed_s = progress.load_s + 1.5 * self._trial_s()
        return time.time() - progress.started_at + needed_s <= budget_s

    def _trial_s(self) -> float:
        return min(LONGEST_USUAL_TRIAL_S, settings.PROFILE_BUDGET_S / 10)

    def _choose(self) -> str:
        progress, node = self._seen(), self._node()
        choice = choose(progress, node)
        if progress.sweep is None:
            raise ValueError("There is no sweep to choose from.")
        steps = progress.sweep.steps
        measured = self._profile(
            steps=steps,
            trials=choice.trials,
            probe=progress.probe,
            knee_rows=knee(steps).rows,
            memory_bound_rows=memory_bound(progress.sweep, node, choice.batching.instance_count),
            stopped_because=progress.sweep.stopped_because,
            chosen=choice.batching,
            reasons=choice.reasons,
        )
        chosen = choice.batching
        words = (
            f"measured in {measured.duration_s:.0f} s: batches of up to {chosen.max_batch_size} "
            f"rows, {Setting(instance_count=chosen.instance_count).words}, a delay of "
            f"{chosen.max_queue_delay_microseconds} µs."
        )
        return self._store(measured, words)

    def _not_batchable(self, measured: Replica, message: str) -> str:
        self._beat()
        end(measured, ENDED)
        default = plan_batching(example_of(self.decision), {}, self.facts).batching
        found = self._profile(
            steps=(),
            trials=(),
            probe=values.ProbeResult(rows_checked=0, is_row_independent=False, warning=message),
            knee_rows=1,
            memory_bound_rows=None,
            stopped_because=message,
            chosen=replace(default, sources={}),
            reasons={},
        )
        return self._store(found, "measured.")

    def _profile(self, **fields: object) -> values.Profile:
        return values.Profile(
            **fields,  # type: ignore[arg-type]  # the caller names them all
            device=self.device_key,
            duration_s=round(time.time() - self._seen().started_at, 1),
            measured_at=round(time.time(), 3),
        )

    def _store(self, measured: values.Profile, words: str) -> str:
        decision = self.decision
        if decision.entity.model_version is None:
            return ""
        row = keep_profile(decision.entity.model_version, measured)
        record(
            decision.deployment.endpoint,
            "model_measured",
            f"The model of served entity {decision.entity.name} was {words}",
            deployment=decision.deployment,
            entity_name=decision.entity.name,
        )
        warn_of(decision, measured.probe)
        return use_profile(decision, row, measured, words)

    # ------------------------------------------------------------ what is kept

    def _seen(self) -> Progress:
        if self.progress is None:
            raise ValueError("Nothing was measured yet.")
        return self.progress

    def _keep(self, progress: Progress) -> None:
        self.progress = progress
        self.decision.profiling = {"progress": json.loads(to_json(progress))}
        self.decision.save(update_fields=["profiling"])

    def _add_trial(self, trial: values.Trial) -> None:
        self._keep(replace(self._seen(), trials=(*self._seen().trials, trial)))

    def _beat(self, doing: str = "") -> None:
        """Tell that the task lives, and on the page what it does.

        Raises:
            _Gone: It is not this task's any more.
        """
        deployment = self.decision.deployment
        if not still_ours(deployment):
            raise _Gone
        if doing:
            message = f"{self.decision.entity.name}: {doing}."
            deployment.steps.filter(name=StepName.PROFILE).update(message=message)

    def _node(self) -> Node:
        return Node(
            device=self.device.kind,
            cores=self.facts.cores,
            memory_bytes=free_memory_bytes(self.device),
            shared_memory_bytes=self.facts.shared_memory_bytes,
            replicas=wanted_count(self.decision.entity),
        )

    def _input_row_bytes(self) -> int:
        return sum(array.nbytes for array in self.example.part([0]).arrays)


def _first_failure(measured: Replica) -> str:
    """Why its server had to be started again: once is enough for one that is only measured."""
    said = [line.text for line in runtime.read_logs(measured) if line.source == "shoal"]
    found = next((text for text in reversed(said) if STARTED_AGAIN in text), "")
    return found.partition(STARTED_AGAIN)[0].strip() or "Its server ended before it was ready."


def _setting_of(measured: Replica) -> Setting:
    batching = batching_from_json(measured.batching)
    return Setting(
        instance_count=batching.instance_count,
        threads_per_instance=batching.threads_per_instance,
        max_batch_size=batching.max_batch_size,
        max_queue_delay_microseconds=batching.max_queue_delay_microseconds,
    )


def _failed(setting: Setting, why: str) -> values.Trial:
    return values.Trial(
        instance_count=setting.instance_count,
        threads_per_instance=setting.threads_per_instance,
        max_batch_size=setting.max_batch_size,
        max_queue_delay_microseconds=setting.max_queue_delay_microseconds,
        callers=CALLERS,
        requests_per_s=0.0,
        p50_ms=0.0,
        p99_ms=0.0,
        failure=why,
    )
