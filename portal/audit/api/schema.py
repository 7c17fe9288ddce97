"""What the call on the audit log takes and answers."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.audit.api import views
from portal.audit.states import Action, ObjectKind, Outcome
from portal.schema.calls import Call, describe


class AuditEvent(serializers.Serializer[Any]):
    """Who did what, when and from where."""

    id = serializers.IntegerField()
    timestamp = serializers.IntegerField()
    actor = serializers.CharField(allow_null=True)
    via = serializers.CharField()
    token_id = serializers.CharField(allow_null=True)
    address = serializers.CharField(allow_null=True)
    request_id = serializers.CharField(allow_null=True)
    action = serializers.ChoiceField(Action.values)
    object_kind = serializers.ChoiceField(ObjectKind.values)
    object_name = serializers.CharField()
    outcome = serializers.ChoiceField(Outcome.values)
    detail = serializers.DictField()


class AuditPage(serializers.Serializer[Any]):
    events = AuditEvent(many=True)
    next_page_token = serializers.CharField(required=False, help_text="Absent on the last page.")


describe(
    views.AuditLogs,
    get=Call(
        id="list_audit_events",
        group="Audit",
        summary="List what was done, newest first",
        text="Admins only. Times are milliseconds since 1970.",
        query=views.AuditQuery,
        answer=AuditPage,
        errors=(403,),
    ),
)
