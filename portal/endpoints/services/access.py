"""Who sees an endpoint and what they may do on it, by the table of `serving.permissions`."""

from __future__ import annotations

from django.db.models import Q

from portal.accounts.models import User
from portal.endpoints.models import Endpoint, ServedEntity
from portal.endpoints.states import PermissionLevel
from portal.registry.models import RegisteredModel, RegisteredModelQuerySet
from portal.rest import PermissionDenied, ResourceDoesNotExist
from serving.permissions import LEAST_LEVEL, Action, Verdict, highest, judge


def get_endpoint(user: User, name: str) -> Endpoint:
    """The endpoint of that name.

    Raises:
        ResourceDoesNotExist: There is none, or `user` may not see it.
    """
    found = Endpoint.objects.visible_to(user).filter(name=name).first()
    if found is None:
        raise ResourceDoesNotExist(f"There is no endpoint “{name}”, or you may not see it.")
    return found


def get_endpoint_by_id(user: User, public_id: str) -> Endpoint:
    """The endpoint of that public id, as the permission calls name it.

    Raises:
        ResourceDoesNotExist: There is none, or `user` may not see it.
    """
    found = Endpoint.objects.visible_to(user).filter(public_id=public_id).first()
    if found is None:
        raise ResourceDoesNotExist(f"There is no endpoint with id “{public_id}”.")
    return found


def level_of(user: User, endpoint: Endpoint) -> PermissionLevel | None:
    """The highest level that `user` has on `endpoint`, by name, by group, as creator or admin."""
    if user.is_workspace_admin or endpoint.creator_id == user.pk:
        return PermissionLevel.CAN_MANAGE
    found = highest(
        permission.level
        for permission in endpoint.permissions.all()
        if permission.user_id == user.pk or permission.group_name in user.group_names
    )
    return None if found is None else PermissionLevel(found.value)


def require(user: User, endpoint: Endpoint, action: Action) -> None:
    """Let `user` pass where the table lets them do `action` on `endpoint`.

    Raises:
        ResourceDoesNotExist: They may not even see it.
        PermissionDenied: They see it, but may not do this.
    """
    found = level_of(user, endpoint)
    verdict = judge(found, action)
    if found is None or verdict is Verdict.HIDDEN:
        raise ResourceDoesNotExist(
            f"There is no endpoint “{endpoint.name}”, or you may not see it."
        )
    if verdict is Verdict.REFUSED:
        needed = PermissionLevel(LEAST_LEVEL[action].value)
        raise PermissionDenied(
            f"This needs “{needed.label}” on endpoint “{endpoint.name}”; you have "
            f"“{found.label}”. Ask {endpoint.creator} or a workspace admin."
        )


def servable_models(user: User, endpoint: Endpoint | None = None) -> RegisteredModelQuerySet:
    """The models that `user` may serve: those that they read, and what `endpoint` serves already.

    Whether the endpoint's creator reads them is asked apart.
    """
    readable = RegisteredModel.objects.readable_by(user)
    if endpoint is None:
        return readable
    configs = [pk for pk in (endpoint.active_config_id, endpoint.pending_config_id) if pk]
    served = ServedEntity.objects.filter(config__in=configs).values("entity_name")
    return RegisteredModel.objects.filter(Q(pk__in=readable.values("pk")) | Q(name__in=served))
