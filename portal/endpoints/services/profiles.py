"""Profiles of model versions: kept for later deployments, and dropped on a person's word."""

from __future__ import annotations

import json

from django.db import transaction
from django.utils import timezone

from portal.accounts.models import User
from portal.endpoints.models import BackendDecision, Profile, ServedEntity
from portal.endpoints.routes import latest_decision
from portal.endpoints.services import auditing
from portal.endpoints.services.access import require
from portal.endpoints.services.moves import record
from portal.registry.models import ModelVersion
from serving.permissions import Action
from serving.spec import from_json, to_json
from serving.tuning import profile as values


def stored_profile(version: ModelVersion, device_key: str) -> Profile | None:
    """The profile that a deployment may use; None: it has to measure."""
    return version.profiles.filter(device_key=device_key, is_outdated=False).first()


def keep_profile(version: ModelVersion, measured: values.Profile) -> Profile:
    """Keep a profile in the place of the one before."""
    row, _ = Profile.objects.update_or_create(
        model_version=version,
        device_key=measured.device,
        defaults={
            "data": json.loads(to_json(measured)),
            "is_outdated": False,
            "created_at": timezone.now(),
        },
    )
    return row


def profile_of(decision: BackendDecision | None) -> values.Profile | None:
    """The measurements behind a decision's batching; None where there are none."""
    if decision is None or decision.profile is None:
        return None
    return read_profile(decision.profile)


def read_profile(row: Profile) -> values.Profile | None:
    """A kept profile; None where another release of Shoal wrote it in another shape."""
    try:
        return from_json(values.Profile, json.dumps(row.data))
    except ValueError:
        return None


@transaction.atomic
def measure_again(user: User, entity: ServedEntity) -> None:
    """Let the next deployment of the entity's model version measure anew.

    What is deployed goes on as it is, and its figures stay to be seen until then.
    """
    endpoint = entity.config.endpoint
    require(user, endpoint, Action.MEASURE_AGAIN)
    auditing.note(user, endpoint, auditing.Action.ENDPOINT_MEASURE, served_entity=entity.name)
    decision = latest_decision(entity)
    row = decision.profile if decision else None
    if row is None or row.is_outdated:
        return
    Profile.objects.filter(pk=row.pk).update(is_outdated=True)
    message = f"{user} asked for new measurements of {entity.name} at the next deployment."
    record(endpoint, "profile_dropped", message, actor=user, entity_name=entity.name)
