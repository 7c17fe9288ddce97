"""SMOKE_TEST, SWITCH, DRAIN: from ready replicas to live traffic, without a failed request."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from portal.endpoints.deployment.choosing import warn_of
from portal.endpoints.deployment.decide import fall_back
from portal.endpoints.deployment.outcomes import (
    Done,
    FellBack,
    Outcome,
    Skipped,
    StepFailed,
    Waiting,
)
from portal.endpoints.deployment.ownership import still_ours
from portal.endpoints.deployment.replicas import excerpt, retire, wanted_replicas
from portal.endpoints.deployment.start import decisions_of
from portal.endpoints.models import BackendDecision, Deployment, Endpoint, Replica
from portal.endpoints.routes import batching_of, publish
from portal.endpoints.services.moves import move_entity, move_ready, record
from portal.endpoints.states import DeploymentState, EntityState, Ready, StepName
from serving.eligibility import ReasonCode
from serving.errors import ModelRaised, NotBatchable, ServingError
from serving.example import ExampleRows
from serving.probe import smoke_test
from serving.row_probe import probe_rows
from serving.spec import Backend

SMOKE_TIMEOUT_S = 30.0
PROBE_LIMIT_S = 8.0
ROUTES_ARRIVE = timedelta(seconds=2.2)
"""By then every gateway has taken a published route; only then may the old replicas drain."""
FIRST_ROUTE_ARRIVES = timedelta(seconds=0.3)


def smoke(deployment: Deployment) -> Outcome:
    """Send each version's input example to one of its replicas."""
    found: list[str] = []
    tested = 0
    for decision in decisions_of(deployment):
        version = decision.entity.model_version
        if version is None or not version.input_example:
            found.append(f"{decision.entity.name}: skipped, the version has no input example.")
            continue
        replica = wanted_replicas(deployment, decision.entity)[0]
        try:
            result = smoke_test(
                address=replica.address,
                backend=Backend(decision.backend),
                signature=version.signature,
                body=version.input_example,
                timeout_s=SMOKE_TIMEOUT_S,
                max_batch_size=batching_of(decision).max_batch_size,
            )
        except ServingError as exc:
            outcome = _judge(decision, replica, exc)
            if isinstance(outcome, FellBack):
                return outcome
            found.append(outcome)
            continue
        probed = _probe(decision, replica)
        if isinstance(probed, FellBack):
            return probed
        tested += 1
        words = f"{result.rows_in} in, {result.rows_out} out, {result.elapsed_ms:.0f} ms. {probed}"
        found.append(f"{decision.entity.name}: {words}".strip())
    return Done(message=" ".join(found)) if tested else Skipped(message=" ".join(found))


def _probe(decision: BackendDecision, replica: Replica) -> FellBack | str:
    """Whether the model may be batched, where no profile has told; what it found, in words."""
    version = decision.entity.model_version
    if decision.backend != Backend.TRITON or decision.profile_id or version is None:
        return ""
    if not still_ours(decision.deployment):
        return ""
    try:
        result = probe_rows(
            address=replica.address,
            example=ExampleRows(version.signature, version.input_example or {}),
            most_rows=batching_of(decision).max_batch_size,
            limit_s=PROBE_LIMIT_S,
            call_timeout_s=SMOKE_TIMEOUT_S,
        )
    except NotBatchable as exc:
        fall_back(decision, ReasonCode.NOT_BATCHABLE, exc.message)
        return FellBack(message=f"{decision.entity.name}: {exc.message}")
    except ServingError as exc:
        return f"Row independence was not checked: {exc.message}"
    warn_of(decision, result)
    if result.warning or not result.is_row_independent:
        return result.warning
    return f"Each of {result.rows_checked} rows got the answer that it gets alone."


def _judge(decision: BackendDecision, replica: Replica, exc: ServingError) -> FellBack | str:
    """What a failed smoke test means: a warning, the standard backend, or a failed deployment."""
    name = decision.entity.name
    is_triton = decision.backend == Backend.TRITON
    if isinstance(exc, NotBatchable):
        if not is_triton:
            return f"{name}: {exc.message}"
        fall_back(decision, ReasonCode.NOT_BATCHABLE, exc.message)
        return FellBack(message=f"{name}: {exc.message}")
    if isinstance(exc, ModelRaised) or exc.status == 400:
        message = f"{name}: warning, the model raised on its own input example: {exc.message}"
        record(
            decision.deployment.endpoint,
            "smoke_test_warning",
            message,
            deployment=decision.deployment,
            entity_name=name,
            replica_id=replica.public_id,
        )
        return message
    if is_triton:
        message = f"Triton did not answer the input example: {exc.message}"
        fall_back(decision, ReasonCode.TRITON_LOAD_FAILED, message)
        return FellBack(message=f"{name}: {message}")
    raise StepFailed(
        "SMOKE_TEST_FAILED",
        f"{name} did not answer its input example: {exc.message}",
        entity=decision.entity,
        log_excerpt=excerpt(replica),
    )


@transaction.atomic
def switch(deployment: Deployment) -> Outcome:
    """Make the config the active one and publish its route; once, however often it is called."""
    endpoint = Endpoint.objects.select_for_update().get(pk=deployment.endpoint_id)
    config = deployment.config
    # A cancellation holds the same lock, so that one of the two is first.
    deployment.refresh_from_db(fields=["state"])
    if deployment.state != DeploymentState.RUNNING:
        return Waiting(message="The deployment has ended.")
    if endpoint.active_config_id != config.pk:
        endpoint.active_config, endpoint.pending_config = config, None
        endpoint.is_stopped = False
        endpoint.save(update_fields=["active_config", "pending_config", "is_stopped", "updated_at"])
    for entity in config.entities.all():
        move_entity(entity, EntityState.DEPLOYMENT_READY)
    move_ready(endpoint, Ready.READY)
    publish(endpoint)
    return Done(message=f"Config version {config.version} takes the traffic.")


def drain(deployment: Deployment) -> Outcome:
    """Drain and stop the old replicas once every gateway has surely taken the new route."""
    switched = deployment.steps.get(name=StepName.SWITCH).ended_at or timezone.now()
    old = list(
        Replica.objects.filter(entity__config__endpoint=deployment.endpoint, is_wanted=True)
        .exclude(deployment=deployment)
        .select_related("deployment", "entity__config__endpoint")
    )
    left = switched + (ROUTES_ARRIVE if old else FIRST_ROUTE_ARRIVES) - timezone.now()
    if left > timedelta(0):
        return Waiting(
            message="The gateways take the new route.", again_s=max(0.35, left.total_seconds())
        )
    retire(old)
    if not old:
        return Skipped(message="There were no old replicas.")
    names = ", ".join(replica.public_id for replica in old)
    return Done(message=f"Draining {names}.")
