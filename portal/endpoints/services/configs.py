"""Create endpoints and roll out configs; each accepted config starts a deployment."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.db import IntegrityError, transaction
from django.utils import timezone

from portal.accounts.models import User
from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.models import (
    Deployment,
    DeploymentStep,
    Endpoint,
    EndpointConfig,
    EndpointTag,
    ServedEntity,
)
from portal.endpoints.routes import publish
from portal.endpoints.services import auditing
from portal.endpoints.services.access import require, servable_models
from portal.endpoints.services.limits import check_rate_limits
from portal.endpoints.services.moves import move_config_update, move_entity, record
from portal.endpoints.services.quotas import (
    check_concurrency,
    check_endpoints,
    count_operation,
    hold_quotas,
)
from portal.endpoints.services.validation import Problems, plan_config, plan_endpoint
from portal.endpoints.states import (
    UNDER_WAY,
    ConfigUpdate,
    EntityState,
    StepName,
)
from portal.queue import enqueue
from portal.registry import services as registry
from portal.rest import (
    InvalidState,
    PermissionDenied,
    ResourceAlreadyExists,
    ResourceConflict,
)
from serving.permissions import Action

if TYPE_CHECKING:
    from collections.abc import Iterable


def create_endpoint(user: User, wanted: EndpointInput) -> Endpoint:
    """Create an endpoint with its first config and start deploying it.

    Raises:
        InvalidParameterValue: With each problem's field.
        FeatureDisabled: Throughput optimized is asked for while the preview is off.
        ResourceAlreadyExists: The name is taken.
        InvalidState: A quota of the workspace is used up.
        RequestLimitExceeded: Too many creations and updates in a while.
    """
    if Endpoint.objects.filter(name=wanted.name).exists():
        raise _name_is_taken(wanted.name)
    entities = plan_endpoint(user, wanted, servable_models(user))
    _check_limits(wanted)
    try:
        with transaction.atomic():
            hold_quotas()
            check_endpoints()
            check_concurrency(entities)
            count_operation()
            endpoint = Endpoint.objects.create(
                public_id=uuid.uuid4().hex,
                name=wanted.name,
                description=wanted.description,
                creator=user,
                changed_by=user,
                email_notifications=dict(wanted.email_notifications),
                rate_limits=[dict(limit) for limit in wanted.rate_limits],
                ai_gateway=dict(wanted.ai_gateway),
            )
            EndpointTag.objects.bulk_create(
                EndpointTag(endpoint=endpoint, key=key, value=value)
                for key, value in wanted.tags.items()
            )
            record(endpoint, "endpoint_created", f"{user} created the endpoint.", actor=user)
            config = add_config(user, endpoint, entities)
            detail = auditing.config_detail(config)
            auditing.note(user, endpoint, auditing.Action.ENDPOINT_CREATE, **detail)
            begin_deployment(user, endpoint, config)
    except IntegrityError:
        raise _name_is_taken(wanted.name) from None
    return endpoint


def _check_limits(wanted: EndpointInput) -> None:
    problems = Problems()
    check_rate_limits(wanted.rate_limits, problems)
    check_rate_limits(
        wanted.ai_gateway.get("rate_limits", ()), problems, path="ai_gateway.rate_limits"
    )
    problems.raise_if_any()


def _name_is_taken(name: str) -> ResourceAlreadyExists:
    message = f"There is an endpoint “{name}” already. Choose another name."
    return ResourceAlreadyExists(message, details=[{"field": "name", "message": message}])


def update_config(
    user: User, endpoint: Endpoint, entities: Sequence[EntityInput]
) -> EndpointConfig:
    """Give the endpoint a new config and start deploying it; the old one serves meanwhile.

    Raises:
        InvalidParameterValue: With each problem's field.
        FeatureDisabled: Throughput optimized is asked for while the preview is off.
        PermissionDenied: The user may not, or the recorded creator is gone or may not read a model.
        ResourceConflict: An update is under way.
        InvalidState: The endpoint is stopped, or a quota of the workspace is used up.
        RequestLimitExceeded: Too many creations and updates in a while.
    """
    require(user, endpoint, Action.UPDATE_CONFIG)
    check_creator(endpoint)
    if endpoint.is_stopped:
        raise InvalidState(f"Endpoint “{endpoint.name}” is stopped. Start it, then update it.")
    refuse_while_updating(endpoint)
    previous = endpoint.active_config or endpoint.pending_config
    planned = plan_config(user, endpoint, entities, previous, servable_models(user, endpoint))
    check_creator_reads(endpoint, planned)
    with one_update_at_a_time(endpoint), transaction.atomic():
        hold_quotas()
        check_concurrency(planned, endpoint)
        count_operation()
        config = add_config(user, endpoint, planned)
        message = f"{user} changed the configuration to version {config.version}."
        record(endpoint, "config_changed", message, actor=user)
        detail = auditing.config_detail(config)
        auditing.note(user, endpoint, auditing.Action.ENDPOINT_UPDATE, **detail)
        begin_deployment(user, endpoint, config)
    return config


def check_creator(endpoint: Endpoint) -> None:
    """The recorded creator stands for the endpoint's access to its models.

    Raises:
        PermissionDenied: They may no longer log in.
    """
    creator = User.objects.filter(pk=endpoint.creator_id).first()
    if creator is None or not creator.is_active:
        raise PermissionDenied(
            f"The creator of endpoint “{endpoint.name}”, {creator or 'a deleted user'}, is no "
            "longer active. Create the endpoint anew under an active user."
        )


def check_creator_reads(endpoint: Endpoint, entities: Iterable[ServedEntity]) -> None:
    """Serve only what the recorded creator may read; models may have been restricted since.

    Raises:
        PermissionDenied: A model is not theirs to read.
    """
    for entity in entities:
        version = entity.model_version
        if version and not registry.may_read_model(endpoint.creator, version.model):
            raise PermissionDenied(
                f"The creator of endpoint “{endpoint.name}”, {endpoint.creator}, may not read the "
                f"model {version.model}. Ask {version.model.owner} to let them."
            )


def refuse_while_updating(endpoint: Endpoint) -> None:
    """Let only one update run at a time.

    Raises:
        ResourceConflict: One is under way.
    """
    if endpoint.deployments.filter(state__in=UNDER_WAY).exists():
        raise _conflict(endpoint)


def _conflict(endpoint: Endpoint) -> ResourceConflict:
    return ResourceConflict(
        f"Endpoint “{endpoint.name}” is being updated. Wait for it, or cancel the update."
    )


class one_update_at_a_time:  # noqa: N801 - used as a context manager, like a function
    """Say ResourceConflict where the database refuses a second deployment."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, IntegrityError):
            raise _conflict(self.endpoint) from None


def add_config(user: User, endpoint: Endpoint, entities: Iterable[ServedEntity]) -> EndpointConfig:
    """Number a config and keep it with its entities; call it within a transaction."""
    locked = Endpoint.objects.select_for_update().get(pk=endpoint.pk)
    endpoint.last_config_version = locked.last_config_version + 1
    endpoint.changed_by = user
    endpoint.save(update_fields=["last_config_version", "changed_by", "updated_at"])
    config = EndpointConfig.objects.create(
        endpoint=endpoint, version=endpoint.last_config_version, creator=user
    )
    for entity in entities:
        entity.pk, entity.config, entity.creator = None, config, user
        entity.state = EntityState.DEPLOYMENT_CREATING
        entity.state_message = "Creating resources for served entity."
        entity.state_since = timezone.now()
        entity.save(force_insert=True)
    return config


def copy_entities(config: EndpointConfig) -> list[ServedEntity]:
    """The config's entities as new, unsaved ones."""
    return list(config.entities.all())


def begin_deployment(user: User, endpoint: Endpoint, config: EndpointConfig) -> Deployment:
    """Queue the deployment of `config`; call it within a transaction."""
    endpoint.pending_config = config
    endpoint.save(update_fields=["pending_config", "updated_at"])
    move_config_update(endpoint, ConfigUpdate.IN_PROGRESS)
    for entity in config.entities.all():
        if entity.state in {EntityState.DEPLOYMENT_FAILED, EntityState.DEPLOYMENT_ABORTED}:
            move_entity(entity, EntityState.DEPLOYMENT_CREATING, reason="Deployed again.")
    deployment = Deployment.objects.create(endpoint=endpoint, config=config)
    DeploymentStep.objects.bulk_create(
        DeploymentStep(deployment=deployment, position=position, name=name)
        for position, name in enumerate(StepName)
    )
    record(
        endpoint,
        "deployment_queued",
        f"The deployment of config version {config.version} is queued.",
        actor=user,
        deployment=deployment,
    )
    publish(endpoint)
    enqueue("endpoints.advance", deployment.pk)
    return deployment
