"""PROFILE: measure a model version on its device once, and choose its batching from that."""

from __future__ import annotations

from portal.endpoints import runtime
from portal.endpoints.batching import batching_to_json, node_facts, plan_batching
from portal.endpoints.deployment.outcomes import Done, Outcome, Skipped
from portal.endpoints.deployment.start import decisions_of
from portal.endpoints.models import BackendDecision, Deployment, Profile
from portal.endpoints.services.profiles import read_profile, stored_profile
from serving.devices import device_key
from serving.spec import Backend


def profile(deployment: Deployment) -> Outcome:
    """Give each entity on Triton the batching that its version's profile speaks for."""
    words = []
    for decision in decisions_of(deployment):
        version = decision.entity.model_version
        if decision.backend != Backend.TRITON or version is None:
            continue
        device = runtime.device_for(decision.entity.workload_type)
        row = stored_profile(version, device_key(device, cores=node_facts().cores))
        if row is not None:
            use_profile(decision, row)
            when = f"{row.created_at:%Y-%m-%d %H:%M} UTC"
            words.append(f"{decision.entity.name}: profile of {when} on {row.device_key} reused.")
    return Done(message=" ".join(words)) if words else Skipped(message="Nothing was measured.")


def use_profile(decision: BackendDecision, row: Profile) -> None:
    """Put the batching in force that the profile and the entity's overrides give."""
    measured, entity = read_profile(row), decision.entity
    example = entity.model_version.input_example if entity.model_version else None
    plan = plan_batching(example, entity.batching, node_facts(), measured)
    decision.profile = row
    decision.batching = batching_to_json(plan.batching)
    decision.batching_reasons = plan.reasons
    decision.save(update_fields=["profile", "batching", "batching_reasons"])
