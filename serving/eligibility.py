"""The rules for throughput optimization: who may run on Triton, why not, and what to do about it.

Pure: one function over plain values. The form shows its rules, the API refuses with its words, and
each deployment asks it anew. The table:

    rule           passes when                          fails with         cure
    PREVIEW        the preview is on                    PREVIEW_OFF        an admin turns it on
    WORKLOAD       the workload type has a GPU          CPU_WORKLOAD       choose a GPU type
    ENTRYPOINT     MLmodel names no server command      CUSTOM_ENTRYPOINT  log without an entrypoint
    EXPRESS        the packed version is STAGED         NOT_EXPRESS        register with env_pack
                                                        STAGING_FAILED     mend and register again
                   undecided while staging runs         STAGING            wait; a deployment waits
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from serving.workloads import WORKLOAD_TYPES

ENV_PACK = 'mlflow.register_model(..., env_pack="databricks_model_serving")'


class RuleCode(StrEnum):
    """The rules, by name."""

    PREVIEW = "PREVIEW"
    WORKLOAD = "WORKLOAD"
    ENTRYPOINT = "ENTRYPOINT"
    EXPRESS = "EXPRESS"


class ReasonCode(StrEnum):
    """Why a served entity runs on Triton or does not; stable words of the API."""

    ELIGIBLE = "ELIGIBLE"
    NOT_REQUESTED = "NOT_REQUESTED"  # the switch is off
    PREVIEW_OFF = "PREVIEW_OFF"
    CPU_WORKLOAD = "CPU_WORKLOAD"
    CUSTOM_ENTRYPOINT = "CUSTOM_ENTRYPOINT"
    NO_VERSION = "NO_VERSION"  # no model version chosen, or it was deleted
    NOT_EXPRESS = "NOT_EXPRESS"  # registered without the packed environment
    STAGING = "STAGING"  # being unpacked and checked
    STAGING_FAILED = "STAGING_FAILED"
    TRITON_LOAD_FAILED = "TRITON_LOAD_FAILED"  # seen at deploy time
    NOT_BATCHABLE = "NOT_BATCHABLE"  # seen at deploy time: N rows in, not N rows out


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """One rule's outcome.

    Attributes:
        passed: None while it cannot be told yet.
        reason: The word for the failure; None when it passed.
        message: The fact that was found.
        cure: What to do; empty when there is nothing to do.
    """

    code: RuleCode
    title: str
    passed: bool | None
    message: str
    cure: str = ""
    reason: ReasonCode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Eligibility:
    """All rules' outcomes, in the order in which they are shown.

    Attributes:
        is_eligible: Every rule passes.
        may_become: Only staging still runs; it may yet pass.
    """

    is_eligible: bool
    may_become: bool
    rules: tuple[RuleResult, ...]

    @property
    def failed(self) -> tuple[RuleResult, ...]:
        """Rules that fail for certain."""
        return tuple(rule for rule in self.rules if rule.passed is False)

    @property
    def first_obstacle(self) -> RuleResult | None:
        """The rule to name first: one that fails, else one that is undecided."""
        undecided = (rule for rule in self.rules if rule.passed is None)
        return next(iter(self.failed), next(undecided, None))

    @property
    def reason_code(self) -> ReasonCode:
        """ELIGIBLE, or the first obstacle's word."""
        obstacle = self.first_obstacle
        return ReasonCode.ELIGIBLE if obstacle is None else obstacle.reason or ReasonCode.NO_VERSION

    @property
    def message(self) -> str:
        """One sentence or two: the first obstacle and its cure."""
        obstacle = self.first_obstacle
        if obstacle is None:
            return "Every rule for throughput optimization passes."
        return f"{obstacle.message} {obstacle.cure}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    preview_enabled: bool
    workload_type: str
    entrypoint: str
    express_state: str
    express_message: str
    is_packed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    passed: bool | None
    message: str
    cure: str = ""
    reason: ReasonCode | None = None


def _passes(message: str) -> _Outcome:
    return _Outcome(passed=True, message=message)


def _fails(reason: ReasonCode, message: str, cure: str) -> _Outcome:
    return _Outcome(passed=False, reason=reason, message=message, cure=cure)


def _waits(reason: ReasonCode, message: str, cure: str) -> _Outcome:
    return _Outcome(passed=None, reason=reason, message=message, cure=cure)


def _preview(facts: _Facts) -> _Outcome:
    if facts.preview_enabled:
        return _passes("The preview is on.")
    return _fails(
        ReasonCode.PREVIEW_OFF,
        "The preview “Throughput optimized serving (Triton)” is off.",
        "Ask a workspace admin to turn it on, on the Previews page.",
    )


def _workload(facts: _Facts) -> _Outcome:
    found = WORKLOAD_TYPES.get(facts.workload_type)
    if found is not None and found.is_gpu:
        return _passes(f"{found.name} has a GPU.")
    return _fails(
        ReasonCode.CPU_WORKLOAD,
        f"The workload type {facts.workload_type or 'CPU'} has no GPU.",
        "Choose a GPU workload type, such as GPU_SMALL.",
    )


def _entrypoint(facts: _Facts) -> _Outcome:
    if not facts.entrypoint:
        return _passes("The model has no custom entrypoint.")
    return _fails(
        ReasonCode.CUSTOM_ENTRYPOINT,
        "The model brings its own server: its MLmodel names a custom entrypoint.",
        "Log the model without metadata.entrypoint.",
    )


def _express(facts: _Facts) -> _Outcome:
    match facts.express_state:
        case "STAGED":
            return _passes("The version is express: its packed environment is staged.")
        case "STAGING":
            return _waits(
                ReasonCode.STAGING,
                "The version is being staged: its packed environment is unpacked and checked.",
                "Wait for it; a deployment that starts now waits by itself.",
            )
        case "FAILED":
            cause = facts.express_message.strip()
            return _fails(
                ReasonCode.STAGING_FAILED,
                f"Staging of the version failed: {cause}" if cause else "Staging failed.",
                "Mend the cause and register the model again, or stage the version again.",
            )
        case "":
            return _waits(
                ReasonCode.NO_VERSION, "No model version is chosen.", "Choose a model version."
            )
    if facts.is_packed:
        return _waits(
            ReasonCode.STAGING,
            "The version's packed environment is not staged yet.",
            "A deployment stages it first.",
        )
    return _fails(
        ReasonCode.NOT_EXPRESS,
        "The version is not express: it was registered without its packed environment.",
        f"Register it again with {ENV_PACK}.",
    )


RULES: tuple[tuple[RuleCode, str, Callable[[_Facts], _Outcome]], ...] = (
    (RuleCode.PREVIEW, "The preview is on", _preview),
    (RuleCode.WORKLOAD, "GPU workload type", _workload),
    (RuleCode.ENTRYPOINT, "No custom entrypoint", _entrypoint),
    (RuleCode.EXPRESS, "Express deployment", _express),
)
"""Every rule with its title, in the order in which they are shown."""


def check(
    *,
    preview_enabled: bool,
    workload_type: str,
    entrypoint: str,
    express_state: str,
    express_message: str,
    is_packed: bool,
) -> Eligibility:
    """Judge every rule for one model version on one workload type.

    Args:
        preview_enabled: Whether the workspace's preview is on.
        workload_type: A key of `serving.workloads.WORKLOAD_TYPES`; anything else has no GPU.
        entrypoint: The MLmodel's `metadata.entrypoint`, empty without one.
        express_state: NOT_STAGED, STAGING, STAGED or FAILED; empty when no version is chosen.
        express_message: Why staging failed.
        is_packed: Whether the version brought its packed environment.
    """
    facts = _Facts(
        preview_enabled=preview_enabled,
        workload_type=workload_type,
        entrypoint=entrypoint,
        express_state=express_state,
        express_message=express_message,
        is_packed=is_packed,
    )
    rules = []
    for code, title, judge in RULES:
        outcome = judge(facts)
        rules.append(
            RuleResult(
                code=code,
                title=title,
                passed=outcome.passed,
                message=outcome.message,
                cure=outcome.cure,
                reason=outcome.reason,
            )
        )
    obstacles = {rule.reason for rule in rules if rule.passed is not True}
    return Eligibility(
        is_eligible=not obstacles,
        may_become=obstacles == {ReasonCode.STAGING},
        rules=tuple(rules),
    )
