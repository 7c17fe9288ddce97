"""PROFILE: measure a model version on its device once, and choose its batching from that.

A *profile replica* is launched, measured and ended; further ones follow for other settings, one at
a time. A profile that cannot be taken fails nothing: defaults are used, with the cause.
"""

from __future__ import annotations

from django.conf import settings

from portal.endpoints.deployment.choosing import use_defaults, use_profile
from portal.endpoints.deployment.measuring import ENDED, Measuring
from portal.endpoints.deployment.outcomes import Done, Outcome, Skipped, Waiting
from portal.endpoints.deployment.replicas import end
from portal.endpoints.deployment.start import decisions_of
from portal.endpoints.models import BackendDecision, Deployment
from portal.endpoints.services.profiles import read_profile, stored_profile
from portal.endpoints.states import ReplicaPurpose
from serving.errors import InvalidInput
from serving.example import ExampleRows
from serving.spec import Backend

NO_EXAMPLE = "The model version has no input example, so nothing could be measured."
TURNED_OFF = "Measuring is turned off (SHOAL_PROFILE_BUDGET_S is 0)."


def profile(deployment: Deployment) -> Outcome:
    """Give each entity on Triton the batching that measurements of its model speak for."""
    words = []
    for decision in decisions_of(deployment):
        outcome = decision.profiling.get("outcome")
        if outcome is None and decision.backend == Backend.TRITON:
            outcome = _settle(decision)
        if isinstance(outcome, Waiting):
            return outcome
        if outcome:
            words.append(f"{decision.entity.name}: {outcome}")
    for left in deployment.replicas.filter(purpose=ReplicaPurpose.PROFILE, is_wanted=True):
        end(left, ENDED)  # where a task died before it could
    return Done(message=" ".join(words)) if words else Skipped(message="Nothing to measure.")


def _settle(decision: BackendDecision) -> str | Waiting:
    """What became of one entity's profile, or what it waits for."""
    version = decision.entity.model_version
    if version is None or not version.input_example:
        return use_defaults(decision, NO_EXAMPLE)
    if not settings.PROFILE_BUDGET_S:
        return use_defaults(decision, TURNED_OFF)
    try:
        example = ExampleRows(version.signature, version.input_example)
    except InvalidInput as exc:
        return use_defaults(decision, f"Nothing could be measured: {exc.message}")
    measuring = Measuring(decision, example)
    if not decision.profiling:
        row = stored_profile(version, measuring.device_key)
        measured = read_profile(row) if row else None
        if row is not None and measured is not None:
            when = f"{row.created_at:%Y-%m-%d %H:%M} UTC"
            words = f"profile of {when} on {row.device_key} reused."
            return use_profile(decision, row, measured, words)
    return measuring.go_on()
