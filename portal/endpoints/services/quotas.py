"""The workspace's quotas: how many endpoints, how much concurrency, how many changes in a while.

They keep a workspace from taking the whole machine by mistake. Whoever asks for room holds the
quotas from the look at them until the commit, so that two calls cannot both take the last of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone

from portal.endpoints.models import Endpoint, Operation, ServedEntity
from portal.rest import InvalidState, RequestLimitExceeded

OPERATIONS_WINDOW = timedelta(minutes=5)
ADVISORY_LOCK = 7_316_401
"""Any number that nothing else in this database uses for `pg_advisory_xact_lock`."""


def hold_quotas() -> None:
    """Let nobody else look at the quotas until this transaction ends; call it before the checks.

    On SQLite there is nothing to do: its transactions begin IMMEDIATE and so wait for each other.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("quotas are held within a transaction")
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])


def check_endpoints() -> None:
    """Let one more endpoint be created; the quotas are held.

    Raises:
        InvalidState: The workspace has as many as it may.
    """
    found = Endpoint.objects.existing().count()
    if found >= settings.MAX_ENDPOINTS:
        raise InvalidState(
            f"The workspace has {found} endpoints; at most {settings.MAX_ENDPOINTS} are allowed. "
            "Delete one that is not needed."
        )


def check_concurrency(entities: Iterable[ServedEntity], endpoint: Endpoint | None = None) -> None:
    """Let `entities` be deployed beside what the other endpoints hold; the quotas are held.

    A stopped endpoint holds nothing; one that is being updated holds the larger of its two configs.

    Raises:
        InvalidState: The workspace would hold more provisioned concurrency than it may.
    """
    wanted = sum(entity.max_provisioned_concurrency for entity in entities)
    others = Endpoint.objects.existing().select_related("active_config", "pending_config")
    others = others.prefetch_related("active_config__entities", "pending_config__entities")
    if endpoint is not None:
        others = others.exclude(pk=endpoint.pk)
    held = sum(_held(other) for other in others)
    if held + wanted > settings.MAX_WORKSPACE_CONCURRENCY:
        raise InvalidState(
            f"Workspace exceeded provisioned concurrency quota: {wanted} asked for, {held} held "
            f"by other endpoints, {settings.MAX_WORKSPACE_CONCURRENCY} allowed. Choose a smaller "
            "size, or stop or delete endpoints to free theirs."
        )


def _held(endpoint: Endpoint) -> int:
    configs = [endpoint.pending_config] if endpoint.is_updating else []
    if not endpoint.is_stopped:
        configs.append(endpoint.active_config)
    return max(
        (
            sum(entity.max_provisioned_concurrency for entity in config.entities.all())
            for config in configs
            if config is not None
        ),
        default=0,
    )


def count_operation() -> None:
    """Count a creation or an update that is about to be made; the quotas are held.

    Raises:
        RequestLimitExceeded: There were too many in the last five minutes.
    """
    now = timezone.now()
    Operation.objects.filter(at__lte=now - OPERATIONS_WINDOW).delete()
    most = settings.MAX_OPERATIONS
    lately = list(Operation.objects.order_by("-at").values_list("at", flat=True)[:most])
    if len(lately) == most:
        wait_s = max(1, math.ceil((lately[-1] + OPERATIONS_WINDOW - now).total_seconds()))
        raise RequestLimitExceeded(
            f"There were {most} creations and updates of endpoints in the last 5 minutes, which "
            f"is as many as are allowed. Try again in {wait_s} s.",
            retry_after_s=wait_s,
        )
    Operation.objects.create()
