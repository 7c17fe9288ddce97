"""DECIDE: which backend each served entity gets in this deployment, and why; kept for good."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction

from portal.endpoints import runtime
from portal.endpoints.batching import batching_to_json, node_facts, plan_batching
from portal.endpoints.deployment.outcomes import Done, Outcome, StepFailed, Waiting
from portal.endpoints.models import BackendDecision, Deployment, ServedEntity
from portal.endpoints.services.moves import record
from portal.endpoints.services.validation import eligibility_of
from portal.registry import services as registry
from portal.registry.models import ModelVersion
from portal.registry.states import ExpressState
from serving.eligibility import ENV_PACK, Eligibility, ReasonCode
from serving.spec import Backend, DeviceKind
from serving.workloads import WORKLOAD_TYPES

BACKEND_NAMES = {
    Backend.TRITON: "Triton",
    Backend.STANDARD: "the standard backend",
    Backend.ENTRYPOINT: "the server that the model brings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A backend with its reason."""

    backend: Backend
    reason_code: ReasonCode
    message: str


def decide(deployment: Deployment) -> Outcome:
    """Decide for every entity; waits while a version that wants Triton is being staged."""
    waits: list[str] = []
    made = []
    for entity in deployment.config.entities.select_related("model_version__model"):
        decision = BackendDecision.objects.filter(deployment=deployment, entity=entity).first()
        if decision is None:
            version = entity.model_version
            if version is None:
                raise StepFailed(
                    "MODEL_VERSION_DELETED",
                    f"{entity.entity_name} version {entity.entity_version} was deleted. "
                    "Choose another version.",
                    entity=entity,
                )
            eligibility = eligibility_of(version, entity.workload_type)
            if version.entrypoint and (wait := _wait_for_express(entity, version)):
                waits.append(wait)
                continue
            if entity.throughput_optimized and eligibility.may_become:
                waits.append(_wait_for_staging(deployment, entity, version, eligibility))
                continue
            choice = _own_server() if version.entrypoint else choose(entity, eligibility)
            decision = _keep(deployment, entity, version, eligibility, choice)
        made.append(decision)
    if len(made) < deployment.config.entities.count():
        return Waiting(message=" ".join(wait for wait in waits if wait))
    words = (f"{d.entity.name}: {Backend(d.backend).title()}. {d.message}" for d in made)
    return Done(message=" ".join(words))


def choose(entity: ServedEntity, eligibility: Eligibility) -> Choice:
    """The backend that the switch and the rules give."""
    if not entity.throughput_optimized:
        return Choice(
            backend=Backend.STANDARD,
            reason_code=ReasonCode.NOT_REQUESTED,
            message="Throughput optimized is off.",
        )
    backend = Backend.TRITON if eligibility.is_eligible else Backend.STANDARD
    return Choice(backend=backend, reason_code=eligibility.reason_code, message=eligibility.message)


def _own_server() -> Choice:
    """A model that brings its own server runs on it, whatever the switch says."""
    return Choice(
        backend=Backend.ENTRYPOINT,
        reason_code=ReasonCode.CUSTOM_ENTRYPOINT,
        message="The model brings its own server: the command of its MLmodel is run.",
    )


def _wait_for_express(entity: ServedEntity, version: ModelVersion) -> str:
    """What a version with a custom entrypoint waits for; empty once it is staged.

    Raises:
        StepFailed: It is not express, or its staging failed: its command needs the environment
            that it was packed with.
    """
    if not version.is_packed:
        raise StepFailed(
            ReasonCode.NOT_EXPRESS,
            f"{entity.name}: a custom entrypoint is only supported with an express deployment. "
            f"Register the version again with {ENV_PACK}.",
            entity=entity,
        )
    prepared = registry.ensure_prepared(version)
    version.refresh_from_db(fields=["express_state", "express_message"])
    if version.express_state == ExpressState.FAILED:
        raise StepFailed(
            ReasonCode.STAGING_FAILED,
            f"{entity.name}: a custom entrypoint needs its packed environment, and staging it "
            f"failed: {version.express_message}",
            entity=entity,
        )
    is_staged = version.express_state == ExpressState.STAGED
    return "" if is_staged else prepared.message or "The version is being staged."


def _wait_for_staging(
    deployment: Deployment, entity: ServedEntity, version: ModelVersion, eligibility: Eligibility
) -> str:
    """What the deployment waits for; empty when staging has just ended, one way or the other."""
    prepared = registry.ensure_prepared(version)
    if prepared.state == "working":
        return prepared.message or eligibility.message
    if prepared.state == "failed":
        choice = Choice(
            backend=Backend.STANDARD,
            reason_code=ReasonCode.STAGING_FAILED,
            message=f"Staging of the version failed: {prepared.message}",
        )
        _keep(deployment, entity, version, eligibility, choice)
    return ""


@transaction.atomic
def _keep(
    deployment: Deployment,
    entity: ServedEntity,
    version: ModelVersion,
    eligibility: Eligibility,
    choice: Choice,
) -> BackendDecision:
    message = " ".join([choice.message, *_remarks(entity, version, choice.backend)])
    plan = plan_batching(version.input_example, entity.batching, node_facts())
    decision, is_new = BackendDecision.objects.get_or_create(
        deployment=deployment,
        entity=entity,
        defaults={
            "backend": choice.backend,
            "reason_code": choice.reason_code,
            "message": message,
            "rules": rules_to_json(eligibility),
            "batching": batching_to_json(plan.batching),
            "batching_reasons": plan.reasons,
        },
    )
    if is_new:
        _announce(decision)
    return decision


def _remarks(entity: ServedEntity, version: ModelVersion, backend: Backend) -> list[str]:
    """What the user should know besides the reason: emulation, an environment for CPUs."""
    remarks: list[str] = []
    if not WORKLOAD_TYPES[entity.workload_type].is_gpu:
        return remarks
    if runtime.device_for(entity.workload_type).kind == DeviceKind.CPU_EMULATION:
        remarks.append("This machine has no GPU: the workload type runs in CPU emulation.")
    if version.is_packed and version.is_packed_for_cpu:
        remarks.append(
            f"Warning: the environment was packed on {version.databricks_runtime}, a runtime "
            "without a GPU, so its packages may not use one."
        )
    return remarks


def _announce(decision: BackendDecision) -> None:
    name = BACKEND_NAMES[Backend(decision.backend)]
    record(
        decision.deployment.endpoint,
        "backend_decided",
        f"Served entity {decision.entity.name} runs on {name}. {decision.message}",
        deployment=decision.deployment,
        entity_name=decision.entity.name,
    )


def rules_to_json(eligibility: Eligibility) -> list[dict[str, Any]]:
    """The rules' outcomes as they are kept and answered."""
    return [asdict(rule) for rule in eligibility.rules]


@transaction.atomic
def fall_back(decision: BackendDecision, reason: ReasonCode, message: str) -> None:
    """Change a decision for Triton to the standard backend, for a cause seen at deploy time."""
    decision.backend = Backend.STANDARD
    decision.reason_code = reason
    decision.message = message
    decision.save(update_fields=["backend", "reason_code", "message", "decided_at"])
    record(
        decision.deployment.endpoint,
        "backend_fell_back",
        f"Served entity {decision.entity.name} falls back to the standard backend. {message}",
        deployment=decision.deployment,
        entity_name=decision.entity.name,
    )
