"""Put a batching in force on a decision: from a profile, or from defaults with the cause."""

from __future__ import annotations

from portal.endpoints.batching import batching_to_json, node_facts, plan_batching
from portal.endpoints.deployment.decide import fall_back
from portal.endpoints.models import BackendDecision, Profile
from portal.endpoints.services.moves import record
from serving.eligibility import ReasonCode
from serving.tuning import profile as values


def use_defaults(decision: BackendDecision, why: str) -> str:
    plan = plan_batching(
        example_of(decision), decision.entity.batching, node_facts(), why_default=why
    )
    decision.batching = batching_to_json(plan.batching)
    decision.batching_reasons = plan.reasons
    return _close(decision, f"default batching. {why}")


def use_profile(
    decision: BackendDecision, row: Profile, measured: values.Profile, words: str
) -> str:
    decision.profile = row
    probe = measured.probe
    if probe is not None and probe.is_row_independent is False:
        fall_back(decision, ReasonCode.NOT_BATCHABLE, probe.warning)
        return _close(decision, f"{words} {probe.warning}")
    plan = plan_batching(example_of(decision), decision.entity.batching, node_facts(), measured)
    decision.batching = batching_to_json(plan.batching)
    decision.batching_reasons = plan.reasons
    return _close(decision, words)


def _close(decision: BackendDecision, outcome: str) -> str:
    decision.profiling = {"outcome": outcome}
    decision.save(update_fields=["profile", "profiling", "batching", "batching_reasons"])
    return outcome


def example_of(decision: BackendDecision) -> dict[str, object] | None:
    version = decision.entity.model_version
    return version.input_example if version else None


def warn_of(decision: BackendDecision, probe: values.ProbeResult | None) -> None:
    """Put what the probe warns of on the endpoint's time line."""
    if probe is None or not probe.warning or probe.is_row_independent is False:
        return  # falling back has its own event
    record(
        decision.deployment.endpoint,
        "batching_warning",
        f"Served entity {decision.entity.name}: {probe.warning}",
        deployment=decision.deployment,
        entity_name=decision.entity.name,
    )
