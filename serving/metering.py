"""What gateways count of an endpoint's requests, and how the counts stand in Redis.

Each gateway adds what it saw to one hash an endpoint, which only grows (an endpoint's totals), and
to a hash for each ten seconds, which soon expires (what happened in the last minute). A field is
`<served entity>/<what>`; requests that were refused before an entity was chosen have an empty name.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

BUCKETS_MS: tuple[float, ...] = (
    *(0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 7.5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 400, 500),
    *(750, 1000, 1500, 2000, 3000, 5000, 7500, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000),
    600_000,
)
"""Upper bounds of the histograms' buckets; one more, without a bound, follows."""

SLOT_S = 10
"""What happened lately is kept in slots of so many seconds."""
RECENT_S = 60
RECENT_SLOTS = RECENT_S // SLOT_S

_BOUNDS = tuple(f"{bound:g}" for bound in (*BUCKETS_MS, math.inf))
_INDEX = {bound: index for index, bound in enumerate(_BOUNDS)}


class Histogram:
    """How long something took, in buckets of milliseconds."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * len(_BOUNDS)  # of each bucket alone, not cumulative
        self.sum_ms = 0.0

    def add(self, ms: float) -> None:
        """Count one more."""
        self.counts[bisect_left(BUCKETS_MS, ms)] += 1
        self.sum_ms += ms

    @property
    def count(self) -> int:
        """How many were counted."""
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, int]]:
        """Each bucket's upper bound and how many lie below it, as Prometheus wants it."""
        found, below = [], 0
        for bound, count in zip(_BOUNDS, self.counts, strict=True):
            below += count
            found.append(("+Inf" if bound == "inf" else bound, below))
        return found


class Tally:
    """What was counted of one served entity.

    Attributes:
        statuses: HTTP status to requests that ended with it.
        retried: Requests that were tried again, because a replica ended or had no room.
        rows: Given to the model; only Triton's requests are known by rows.
        total: From the moment a request was read to its answer.
        queue: Of that, on the way to the model and back, for the most part waiting in queues.
        compute: Of that, in the model.
    """

    __slots__ = ("compute", "queue", "retried", "rows", "statuses", "total")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.retried = 0
        self.rows = 0
        self.total = Histogram()
        self.queue = Histogram()
        self.compute = Histogram()

    def requests(self, hundreds: int | None = None) -> int:
        """Requests, of all status classes or of one (4 for 4xx)."""
        return sum(
            count
            for status, count in self.statuses.items()
            if hundreds is None or status // 100 == hundreds
        )

    def fields(self, entity_name: str) -> dict[str, float]:
        """What is not zero, as fields to add to a hash."""
        found: dict[str, float] = self.status_fields(entity_name)
        if self.retried:
            found[f"{entity_name}/retried"] = self.retried
        if self.rows:
            found[f"{entity_name}/rows"] = self.rows
        for name, histogram in self._histograms():
            for bound, count in zip(_BOUNDS, histogram.counts, strict=True):
                if count:
                    found[f"{entity_name}/{name}_le_{bound}"] = count
            if histogram.sum_ms:
                found[f"{entity_name}/{name}_ms"] = histogram.sum_ms
        return found

    def status_fields(self, entity_name: str) -> dict[str, float]:
        """Only the requests by status, as fields to add to a hash."""
        return {f"{entity_name}/{status}": count for status, count in self.statuses.items()}

    def take(self, what: str, value: str) -> None:
        """Add a field of a hash; an unknown one is of a later release and left out."""
        kind, _, bound = what.partition("_le_")
        if what.isdigit():
            self.statuses[int(what)] = self.statuses.get(int(what), 0) + int(value)
        elif what == "retried":
            self.retried += int(value)
        elif what == "rows":
            self.rows += int(value)
        for name, histogram in self._histograms():
            if kind == name and bound in _INDEX:
                histogram.counts[_INDEX[bound]] += int(value)
            elif what == f"{name}_ms":
                histogram.sum_ms += float(value)

    def _histograms(self) -> tuple[tuple[str, Histogram], ...]:
        return ("total", self.total), ("queue", self.queue), ("compute", self.compute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """What is known of an endpoint's requests, by served entity.

    Attributes:
        totals: Since the endpoint was made, or since Redis lost its memory.
        recent: Requests of the last minute, by HTTP status.
    """

    totals: Mapping[str, Tally] = field(default_factory=dict)
    recent: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


def read_totals(fields: Mapping[str, str]) -> dict[str, Tally]:
    """What `Tally.fields` added to a hash, by served entity."""
    found: dict[str, Tally] = {}
    for name, value in fields.items():
        entity_name, _, what = name.rpartition("/")
        found.setdefault(entity_name, Tally()).take(what, value)
    return found


def slots_of(now: float) -> list[int]:
    """The slots that cover the last minute, the present one first."""
    present = int(now // SLOT_S)
    return [present - age for age in range(RECENT_SLOTS + 1)]


def read_recent(slots: Iterable[Mapping[str, str]], now: float) -> dict[str, dict[int, int]]:
    """Requests of the last minute by served entity and status, from the hashes of `slots_of`.

    Of the oldest slot only a part lies within the minute; its requests are taken as spread evenly.
    """
    part = 1 - now % SLOT_S / SLOT_S
    sums: dict[tuple[str, int], float] = {}
    for age, fields in enumerate(slots):
        for name, value in fields.items():
            entity_name, _, status = name.rpartition("/")
            share = int(value) * (part if age == RECENT_SLOTS else 1)
            key = entity_name, int(status)
            sums[key] = sums.get(key, 0) + share
    found: dict[str, dict[int, int]] = {}
    for (entity_name, code), count in sums.items():
        found.setdefault(entity_name, {})[code] = round(count)
    return found
