"""The audit log over REST, for admins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.accounts.models import User
from portal.audit import reading
from portal.audit.models import AuditEvent
from portal.audit.states import Action, ObjectKind
from portal.rest import InvalidParameterValue, PermissionDenied, validated

MAX_RESULTS = 1000
LATEST_MS = 253_402_300_799_000  # the last moment of the year 9999
LARGEST_ID = 2**63 - 1


class AuditQuery(serializers.Serializer[dict[str, Any]]):
    actor = serializers.CharField(max_length=150, default="", allow_blank=True)
    action = serializers.ChoiceField(choices=Action.choices, default="", allow_blank=True)
    object_kind = serializers.ChoiceField(choices=ObjectKind.choices, default="", allow_blank=True)
    object_name = serializers.CharField(max_length=300, default="", allow_blank=True)
    start_time = serializers.IntegerField(min_value=0, max_value=LATEST_MS, default=None)
    end_time = serializers.IntegerField(min_value=0, max_value=LATEST_MS, default=None)
    max_results = serializers.IntegerField(min_value=1, max_value=MAX_RESULTS, default=100)
    page_token = serializers.CharField(max_length=20, default="", allow_blank=True)


def event_body(event: AuditEvent) -> dict[str, Any]:
    """A row as clients see it."""
    return {
        "id": event.pk,
        "timestamp": int(event.at.timestamp() * 1000),
        "actor": event.actor or None,
        "via": event.via,
        "token_id": event.token_id or None,
        "address": event.address or None,
        "request_id": event.request_id or None,
        "action": event.action,
        "object_kind": event.object_kind,
        "object_name": event.object_name,
        "outcome": event.outcome,
        "detail": event.detail,
    }


class AuditLogs(APIView):
    """`GET /api/2.0/audit-logs`: newest first; `next_page_token` leads to older rows."""

    def get(self, request: Request) -> Response:
        if not cast(User, request.user).is_workspace_admin:
            raise PermissionDenied("Only workspace admins may read the audit log.")
        asked = validated(AuditQuery, request.query_params.dict())
        wanted = reading.Filter(
            actor=asked["actor"],
            action=asked["action"],
            object_kind=asked["object_kind"],
            object_name=asked["object_name"],
            since=_moment(asked["start_time"]),
            until=_moment(asked["end_time"]),
        )
        rows, following = reading.page_of(
            reading.matching(wanted),
            before=_cursor(asked["page_token"]),
            size=asked["max_results"],
        )
        answer: dict[str, Any] = {"events": [event_body(row) for row in rows]}
        if following is not None:
            answer["next_page_token"] = str(following)
        return Response(answer)


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, tz=UTC)


def _cursor(token: str) -> int | None:
    if not token:
        return None
    if not (token.isascii() and token.isdecimal()) or int(token) > LARGEST_ID:
        raise InvalidParameterValue("page_token is not one that this call gave.")
    return int(token)
