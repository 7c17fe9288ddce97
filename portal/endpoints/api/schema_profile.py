"""The JSON objects of a profile, for their description."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.endpoints.api.schema_requests import Batching


class SweepStep(serializers.Serializer[Any]):
    """Requests of so many rows, one after the other."""

    rows = serializers.IntegerField()
    runs = serializers.IntegerField()
    latency_ms = serializers.FloatField(help_text="The median.")
    rows_per_s = serializers.FloatField()


class Trial(serializers.Serializer[Any]):
    """A setting under callers that each send one row at a time."""

    instance_count = serializers.IntegerField()
    threads_per_instance = serializers.IntegerField()
    max_batch_size = serializers.IntegerField()
    max_queue_delay_microseconds = serializers.IntegerField()
    callers = serializers.IntegerField()
    requests_per_s = serializers.FloatField()
    p50_ms = serializers.FloatField()
    p99_ms = serializers.FloatField()
    is_chosen = serializers.BooleanField()
    failure = serializers.CharField(help_text="Why there are no figures; empty where there are.")


class ProbeResult(serializers.Serializer[Any]):
    """Whether the model may be batched, and whether it gains from it."""

    rows_checked = serializers.IntegerField()
    is_row_independent = serializers.BooleanField(
        allow_null=True, help_text="Null: it could not be checked."
    )
    speedup_of_8 = serializers.FloatField(
        allow_null=True, help_text="Of 8 rows in one call over 8 calls of one."
    )
    warning = serializers.CharField()


class Profile(serializers.Serializer[Any]):
    """The measurements of a model on a device, and the batching chosen from them."""

    steps = SweepStep(many=True)
    trials = Trial(many=True)
    probe = ProbeResult(allow_null=True)
    knee_rows = serializers.IntegerField(
        help_text="The smallest batch with nearly all of the best throughput."
    )
    memory_bound_rows = serializers.IntegerField(
        allow_null=True, help_text="Most rows that shared memory has room for, if it bounds them."
    )
    stopped_because = serializers.CharField()
    chosen = Batching()
    reasons = serializers.DictField(child=serializers.CharField())
    device = serializers.CharField()
    duration_s = serializers.FloatField()
    measured_at = serializers.IntegerField()
