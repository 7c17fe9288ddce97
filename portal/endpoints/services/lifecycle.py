"""Cancel, retry, stop, start and delete: what people do to an endpoint as a whole."""

from __future__ import annotations

from django.db import models, transaction

from portal.accounts.models import User
from portal.endpoints.models import Deployment, Endpoint, Replica
from portal.endpoints.routes import publish, withdraw
from portal.endpoints.services import auditing
from portal.endpoints.services.access import require
from portal.endpoints.services.configs import (
    add_config,
    begin_deployment,
    check_creator,
    check_creator_reads,
    copy_entities,
    one_update_at_a_time,
    refuse_while_updating,
)
from portal.endpoints.services.moves import (
    move_config_update,
    move_deployment,
    move_entity,
    move_ready,
    record,
)
from portal.endpoints.services.quotas import check_concurrency, hold_quotas
from portal.endpoints.states import (
    UNDER_WAY,
    ConfigUpdate,
    DeploymentState,
    EntityState,
    Ready,
)
from portal.queue import enqueue
from portal.rest import InvalidState
from serving.permissions import Action


def retry_deployment(user: User, endpoint: Endpoint) -> Deployment:
    """Deploy once more: the config that failed or was canceled, else the active one anew.

    The backend is decided anew, so this also brings in what has changed since: a preview, staging.

    Raises:
        ResourceConflict: An update is under way.
        InvalidState: The endpoint is stopped, or a quota of the workspace is used up.
    """
    require(user, endpoint, Action.RETRY)
    check_creator(endpoint)
    if endpoint.is_stopped:
        raise InvalidState(f"Endpoint “{endpoint.name}” is stopped. Start it instead.")
    refuse_while_updating(endpoint)
    with one_update_at_a_time(endpoint), transaction.atomic():
        record(endpoint, "deployment_retried", f"{user} asked for a deployment.", actor=user)
        auditing.note(user, endpoint, auditing.Action.ENDPOINT_RETRY)
        config = endpoint.pending_config
        if config is None:
            if endpoint.active_config is None:
                raise InvalidState(f"Endpoint “{endpoint.name}” has nothing to deploy.")
            config = add_config(user, endpoint, copy_entities(endpoint.active_config))
        hold_quotas()
        check_concurrency(config.entities.all(), endpoint)
        check_creator_reads(endpoint, config.entities.all())
        return begin_deployment(user, endpoint, config)


@transaction.atomic
def cancel_update(user: User, endpoint: Endpoint) -> None:
    """Stop the update that is under way; what served before goes on serving.

    Raises:
        InvalidState: No update is under way, or it has taken over the traffic already.
    """
    require(user, endpoint, Action.CANCEL)
    # The switch of the traffic holds the same lock, so that one of the two is first.
    endpoint = Endpoint.objects.select_for_update().get(pk=endpoint.pk)
    deployment = endpoint.deployments.filter(state__in=UNDER_WAY).first()
    if deployment is None:
        raise InvalidState(f"Endpoint “{endpoint.name}” is not being updated.")
    if endpoint.active_config_id == deployment.config_id:
        raise InvalidState("The update has taken over the traffic already; edit the endpoint.")
    message = f"{user} canceled the update."
    if not move_deployment(deployment, DeploymentState.CANCELED, reason=message, actor=user):
        raise InvalidState(f"Endpoint “{endpoint.name}” is not being updated.")
    for entity in deployment.config.entities.all():
        if entity.state == EntityState.DEPLOYMENT_CREATING:
            move_entity(entity, EntityState.DEPLOYMENT_ABORTED, reason=message)
    deployment.replicas.update(is_wanted=False)
    move_config_update(endpoint, ConfigUpdate.UPDATE_CANCELED, message=message)
    version = deployment.config.version
    auditing.note(user, endpoint, auditing.Action.ENDPOINT_CANCEL, config_version=version)
    publish(endpoint)
    enqueue("endpoints.reconcile")


@transaction.atomic
def stop_endpoint(user: User, endpoint: Endpoint) -> None:
    """Release the endpoint's resources; its queries are refused until it is started.

    Raises:
        InvalidState: It is stopped already, or never served.
        ResourceConflict: An update is under way.
    """
    require(user, endpoint, Action.STOP)
    refuse_while_updating(endpoint)
    if endpoint.is_stopped:
        raise InvalidState(f"Endpoint “{endpoint.name}” is stopped already.")
    if endpoint.active_config is None:
        raise InvalidState(f"Endpoint “{endpoint.name}” does not run.")
    endpoint.is_stopped = True
    endpoint.changed_by = user
    endpoint.save(update_fields=["is_stopped", "changed_by", "updated_at"])
    record(endpoint, "endpoint_stopped", f"{user} stopped the endpoint.", actor=user)
    auditing.note(user, endpoint, auditing.Action.ENDPOINT_STOP)
    move_ready(endpoint, Ready.NOT_READY, reason="It was stopped.")
    _replicas(endpoint).update(is_wanted=False)
    publish(endpoint)
    enqueue("endpoints.reconcile")


def start_endpoint(user: User, endpoint: Endpoint) -> Deployment:
    """Deploy a stopped endpoint again, as a new config version with the same properties.

    It counts as stopped until the new config takes the traffic, so that nothing launches the old.

    Raises:
        InvalidState: It is not stopped, or a quota of the workspace is used up.
        ResourceConflict: It is being started.
    """
    require(user, endpoint, Action.START)
    check_creator(endpoint)
    if not endpoint.is_stopped or endpoint.active_config is None:
        raise InvalidState(f"Endpoint “{endpoint.name}” is not stopped.")
    refuse_while_updating(endpoint)
    with one_update_at_a_time(endpoint), transaction.atomic():
        hold_quotas()
        check_concurrency(endpoint.active_config.entities.all(), endpoint)
        record(endpoint, "endpoint_started", f"{user} started the endpoint.", actor=user)
        auditing.note(user, endpoint, auditing.Action.ENDPOINT_START)
        config = add_config(user, endpoint, copy_entities(endpoint.active_config))
        check_creator_reads(endpoint, config.entities.all())
        return begin_deployment(user, endpoint, config)


@transaction.atomic
def delete_endpoint(user: User, endpoint: Endpoint) -> None:
    """Delete the endpoint: gone at once for everybody; its replicas are drained and removed.

    The name is free again at once. Environments stay: other versions share them.
    """
    require(user, endpoint, Action.DELETE)
    for deployment in endpoint.deployments.filter(state__in=UNDER_WAY):
        move_deployment(
            deployment, DeploymentState.CANCELED, reason="The endpoint was deleted.", actor=user
        )
    withdraw(endpoint.name)
    record(endpoint, "endpoint_deleted", f"{user} deleted the endpoint.", actor=user)
    auditing.note(user, endpoint, auditing.Action.ENDPOINT_DELETE)
    endpoint.name = f"deleted-{endpoint.public_id}"
    endpoint.is_deleting = True
    endpoint.save(update_fields=["name", "is_deleting", "updated_at"])
    _replicas(endpoint).update(is_wanted=False)
    enqueue("endpoints.reconcile")


def _replicas(endpoint: Endpoint) -> models.QuerySet[Replica]:
    return Replica.objects.filter(entity__config__endpoint=endpoint)
