"""What the API answers as text: an endpoint's metrics in Prometheus' format.

The first names are the mirrored product's, so that its dashboards work here: gauges of the last
minute in spite of `_total`, histograms that only grow. Names that begin with `shoal_` are our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from portal import bus
from portal.endpoints import runtime
from portal.endpoints.models import Endpoint, Replica, ServedEntity
from portal.endpoints.reading import live_replicas, triton_view
from portal.endpoints.states import Ready, ReplicaState, TritonStatus
from serving.metering import Histogram, Metered, Tally
from serving.spec import Usage
from serving.workloads import WORKLOAD_TYPES

Labels = dict[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A served entity as it stands now."""

    entity: ServedEntity
    labels: Labels
    replicas: list[Replica]
    usages: list[Usage]

    @property
    def units(self) -> int:
        ready = sum(replica.state == ReplicaState.READY for replica in self.replicas)
        return ready * WORKLOAD_TYPES[self.entity.workload_type].units_per_replica


def metrics(endpoint: Endpoint, now_ms: int) -> str:
    """The endpoint's traffic, replicas and state; each sample is stamped with `now_ms`."""
    seen = [_look(endpoint, entity) for entity in _entities(endpoint)]
    metered = bus.read_meter(endpoint.public_id)
    lines = [
        *_usage(seen),
        *_recent(endpoint, seen, metered),
        *_times(endpoint, seen, metered),
        *_state(endpoint, seen),
        *_totals(endpoint, metered),
    ]
    return "".join(f"{line}\n" if line[0] == "#" else f"{line} {now_ms}\n" for line in lines)


def _entities(endpoint: Endpoint) -> list[ServedEntity]:
    return list(endpoint.active_config.entities.all()) if endpoint.active_config else []


def _look(endpoint: Endpoint, entity: ServedEntity) -> _Seen:
    replicas = live_replicas(entity)
    ready = [replica for replica in replicas if replica.state == ReplicaState.READY]
    said = [runtime.status(replica) for replica in ready]
    return _Seen(
        entity=entity,
        labels=_labels(endpoint, entity.name),
        replicas=replicas,
        usages=[status.usage for status in said if status is not None and status.usage],
    )


def _labels(endpoint: Endpoint, entity_name: str) -> Labels:
    """Refused before an entity was chosen, a request belongs to the endpoint alone."""
    labels = {"endpoint_name": endpoint.name}
    return labels | {"served_entity_name": entity_name} if entity_name else labels


# ---------------------------------------------------------------- the mirrored product's names


def _usage(seen: list[_Seen]) -> Iterable[str]:
    used = [one for one in seen if one.usages]
    yield from _metric(
        "cpu_usage_percentage",
        "Processors in use, of those that its replicas may use, on average over them.",
        [(one.labels, _mean(usage.cpu_percent for usage in one.usages)) for one in used],
    )
    yield from _metric(
        "mem_usage_percentage",
        "Memory in use, of what its replicas may use, on average over them.",
        [(one.labels, _mean(usage.memory_percent for usage in one.usages)) for one in used],
    )
    gpus = [
        (one.labels | {"gpu": f"gpu{gpu.index}"}, gpu)
        for one in used
        for gpu in {gpu.index: gpu for usage in one.usages for gpu in usage.gpus}.values()
    ]
    yield from _metric(
        "gpu_usage_percentage",
        "How busy each GPU is.",
        [(labels, gpu.busy_percent) for labels, gpu in gpus],
    )
    yield from _metric(
        "gpu_mem_usage_percentage",
        "Memory in use on each GPU.",
        [(labels, gpu.memory_percent) for labels, gpu in gpus],
    )
    yield from _metric(
        "provisioned_concurrent_requests_total",
        "Provisioned concurrency of the replicas that are ready.",
        [(one.labels, one.units) for one in seen],
    )


def _recent(endpoint: Endpoint, seen: list[_Seen], metered: Metered) -> Iterable[str]:
    counted = {one.entity.name: Tally() for one in seen}
    for name, statuses in metered.recent.items():
        counted.setdefault(name, Tally()).statuses.update(statuses)
    for metric, words, hundreds in (
        ("request_count_total", "Requests", None),
        ("request_4xx_count_total", "Requests answered with a 4xx", 4),
        ("request_5xx_count_total", "Requests answered with a 5xx", 5),
    ):
        yield from _metric(
            metric,
            f"{words} in the last minute.",
            [(_labels(endpoint, name), t.requests(hundreds)) for name, t in counted.items()],
        )


def _times(endpoint: Endpoint, seen: list[_Seen], metered: Metered) -> Iterable[str]:
    tallies = {one.entity.name: Tally() for one in seen}
    tallies |= {name: tally for name, tally in metered.totals.items() if name}
    by_name = [(_labels(endpoint, name), tally) for name, tally in tallies.items()]
    yield from _histogram(
        "request_latency_ms",
        "From the moment a request was read to its answer.",
        [(labels, tally.total) for labels, tally in by_name],
    )
    yield from _histogram(
        "model_prediction_latency_ms",
        "Of that, in the model; known of requests that Triton served.",
        [(labels, tally.compute) for labels, tally in by_name],
    )
    yield from _histogram(
        "model_queue_time_ms",
        "Of that, outside of the model, mostly in queues; known of requests that Triton served.",
        [(labels, tally.queue) for labels, tally in by_name],
    )


# ---------------------------------------------------------------- our own names


def _state(endpoint: Endpoint, seen: list[_Seen]) -> Iterable[str]:
    yield from _metric(
        "shoal_endpoint_ready",
        "Whether every served entity can answer.",
        [(_labels(endpoint, ""), endpoint.ready == Ready.READY)],
    )
    yield from _metric(
        "shoal_replicas",
        "Replicas of each served entity by state.",
        [
            (one.labels | {"state": state.value}, sum(r.state == state for r in one.replicas))
            for one in seen
            for state in ReplicaState
        ],
    )
    yield from _metric(
        "shoal_replica_restarts_total",
        "Restarts of each live replica's server.",
        [
            (one.labels | {"replica": replica.public_id}, replica.restarts)
            for one in seen
            for replica in one.replicas
        ],
        kind="counter",
    )
    yield from _metric(
        "shoal_triton_active",
        "Whether every live replica proves that Triton serves it.",
        [(one.labels, triton_view(one.entity).status == TritonStatus.ACTIVE) for one in seen],
    )


def _totals(endpoint: Endpoint, metered: Metered) -> Iterable[str]:
    yield from _metric(
        "shoal_requests_total",
        "Requests by HTTP status, ever; 499 for callers who hung up.",
        [
            (_labels(endpoint, name) | {"status": str(status)}, count)
            for name, tally in metered.totals.items()
            for status, count in sorted(tally.statuses.items())
        ],
        kind="counter",
    )
    yield from _metric(
        "shoal_retried_requests_total",
        "Requests that were tried again because a replica ended or had no room, ever.",
        [(_labels(endpoint, name), t.retried) for name, t in metered.totals.items() if name],
        kind="counter",
    )
    yield from _metric(
        "shoal_rows_total",
        "Rows that Triton's models were given, ever.",
        [(_labels(endpoint, name), t.rows) for name, t in metered.totals.items() if t.rows],
        kind="counter",
    )


# ---------------------------------------------------------------- Prometheus' text


def _metric(
    name: str, words: str, samples: Iterable[Sample], *, kind: str = "gauge"
) -> Iterable[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield _sample(name, labels, value)


def _histogram(name: str, words: str, samples: Iterable[tuple[Labels, Histogram]]) -> Iterable[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} histogram"
    for labels, histogram in samples:
        for bound, count in histogram.cumulative():
            yield _sample(f"{name}_bucket", labels | {"le": bound}, count)
        yield _sample(f"{name}_sum", labels, histogram.sum_ms)
        yield _sample(f"{name}_count", labels, histogram.count)


def _sample(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f"{key}={json.dumps(text)}" for key, text in labels.items())
    return f"{name}{{{inner}}} {value:.10g}"


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
