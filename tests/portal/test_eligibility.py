"""The rules for throughput optimization, cell by cell."""

from __future__ import annotations

import itertools

import pytest

from serving.eligibility import ReasonCode, RuleCode, check
from serving.workloads import WORKLOAD_TYPES

GOOD = {
    "preview_enabled": True,
    "workload_type": "GPU_SMALL",
    "entrypoint": "",
    "express_state": "STAGED",
    "express_message": "",
    "is_packed": True,
}

CELLS = [
    ("preview_enabled", False, RuleCode.PREVIEW, False, ReasonCode.PREVIEW_OFF),
    ("workload_type", "CPU", RuleCode.WORKLOAD, False, ReasonCode.CPU_WORKLOAD),
    ("workload_type", "CPU_LARGE", RuleCode.WORKLOAD, False, ReasonCode.CPU_WORKLOAD),
    ("workload_type", "", RuleCode.WORKLOAD, False, ReasonCode.CPU_WORKLOAD),
    ("workload_type", "TPU", RuleCode.WORKLOAD, False, ReasonCode.CPU_WORKLOAD),
    ("entrypoint", "vllm serve", RuleCode.ENTRYPOINT, False, ReasonCode.CUSTOM_ENTRYPOINT),
    ("express_state", "STAGING", RuleCode.EXPRESS, None, ReasonCode.STAGING),
    ("express_state", "NOT_STAGED", RuleCode.EXPRESS, None, ReasonCode.STAGING),
    ("express_state", "FAILED", RuleCode.EXPRESS, False, ReasonCode.STAGING_FAILED),
    ("express_state", "", RuleCode.EXPRESS, None, ReasonCode.NO_VERSION),
]


def test_a_staged_version_on_a_gpu_with_the_preview_on_is_eligible() -> None:
    found = check(**GOOD)  # type: ignore[arg-type]  # the table's mixed values

    assert found.is_eligible
    assert found.reason_code == ReasonCode.ELIGIBLE
    assert [rule.passed for rule in found.rules] == [True] * 4
    assert [rule.code for rule in found.rules] == list(RuleCode)


@pytest.mark.parametrize(("fact", "value", "rule", "passed", "reason"), CELLS)
def test_each_fact_decides_its_own_rule_only(
    fact: str, value: object, rule: RuleCode, passed: bool | None, reason: ReasonCode
) -> None:
    found = check(**{**GOOD, fact: value})  # type: ignore[arg-type]  # the table's mixed values

    outcome = {r.code: r for r in found.rules}
    assert outcome.pop(rule).passed is passed
    assert all(other.passed for other in outcome.values())
    assert not found.is_eligible
    assert found.reason_code == reason
    assert found.may_become == (reason == ReasonCode.STAGING)


def test_a_version_without_its_packed_environment_is_told_how_to_register() -> None:
    found = check(**{**GOOD, "express_state": "NOT_STAGED", "is_packed": False})  # type: ignore[arg-type]  # see above

    assert found.reason_code == ReasonCode.NOT_EXPRESS
    assert 'env_pack="databricks_model_serving"' in found.message
    assert not found.may_become


def test_staging_does_not_excuse_another_rule() -> None:
    found = check(**{**GOOD, "express_state": "STAGING", "workload_type": "CPU"})  # type: ignore[arg-type]  # see above

    assert not found.may_become
    assert found.reason_code == ReasonCode.CPU_WORKLOAD


def test_the_cause_of_a_failed_staging_is_named() -> None:
    found = check(**{**GOOD, "express_state": "FAILED", "express_message": "A device."})  # type: ignore[arg-type]  # see above

    assert "A device." in found.message


@pytest.mark.parametrize("workload_type", WORKLOAD_TYPES.values(), ids=lambda t: t.name)
def test_every_gpu_workload_type_and_no_other_may_be_optimized(workload_type: object) -> None:
    name, is_gpu = workload_type.name, workload_type.is_gpu  # type: ignore[attr-defined]  # a WorkloadType

    assert check(**{**GOOD, "workload_type": name}).is_eligible == is_gpu


def test_every_combination_is_eligible_only_when_each_rule_passes() -> None:
    facts = itertools.product(
        (True, False),
        ("GPU_SMALL", "CPU"),
        ("", "serve"),
        ("STAGED", "STAGING", "FAILED", "NOT_STAGED"),
        (True, False),
    )
    for preview, workload, entrypoint, state, packed in facts:
        found = check(
            preview_enabled=preview,
            workload_type=workload,
            entrypoint=entrypoint,
            express_state=state,
            express_message="",
            is_packed=packed,
        )

        assert found.is_eligible == all(rule.passed for rule in found.rules)
        assert found.is_eligible == (
            preview and workload == "GPU_SMALL" and not entrypoint and state == "STAGED"
        )
        assert not (found.is_eligible and found.may_become)
        for rule in found.rules:
            assert bool(rule.cure) == (rule.passed is not True)
