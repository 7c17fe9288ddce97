"""The form's fields for batching: Triton's own keys, each left to Shoal when it is empty."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from portal.endpoints.models import ServedEntity
from portal.endpoints.reading import batching_in_force
from portal.endpoints.services.validation import BATCHING_BOUNDS, MAX_PREFERRED_SIZES

LABELS = {
    "max_batch_size": "Largest batch (rows)",
    "preferred_batch_size": "Preferred batches (rows)",
    "max_queue_delay_microseconds": "Longest queue delay (µs)",
    "instance_count": "Model instances",
    "max_queue_size": "Queue size (requests)",
    "threads_per_instance": "Threads an instance",
}
BATCHING_KEYS = tuple(LABELS)
NONE = "none"
"""In the place of a list: the empty one, chosen on purpose."""

PREFERRED = "preferred_batch_size"
NUMBER_PATTERN = "[0-9]{1,9}"
LIST_PATTERN = r"none|[0-9]{1,9}(\s*,\s*[0-9]{1,9})*"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingField:
    """One field as the page shows it.

    Attributes:
        automatic: What stands in the empty field.
        mismatch: What is said when the value cannot be right.
    """

    key: str
    label: str
    value: str
    automatic: str
    pattern: str
    least: int
    most: int
    mismatch: str

    @property
    def is_list(self) -> bool:
        return self.key == PREFERRED


def batching_fields(
    values: Mapping[str, str], automatic: Mapping[str, str]
) -> tuple[BatchingField, ...]:
    """All fields, in the page's order; `automatic` holds what is in force of itself."""
    return tuple(
        BatchingField(
            key=key,
            label=label,
            value=values.get(key, ""),
            automatic=f"automatic, now {automatic[key]}" if automatic.get(key) else "automatic",
            pattern=LIST_PATTERN if key == PREFERRED else NUMBER_PATTERN,
            least=_bounds(key)[0],
            most=_bounds(key)[1],
            mismatch=mismatch(key),
        )
        for key, label in LABELS.items()
    )


def mismatch(key: str) -> str:
    """What the API says to a value that is out of bounds, and the form as well."""
    least, most = _bounds(key)
    if key == PREFERRED:
        return f"Give at most {MAX_PREFERRED_SIZES} whole numbers from {least} to {most}."
    return f"Give a whole number from {least} to {most}."


def _bounds(key: str) -> tuple[int, int]:
    return BATCHING_BOUNDS["max_batch_size" if key == PREFERRED else key]


def read_batching(values: Mapping[str, str]) -> tuple[dict[str, object], dict[str, str]]:
    """The overrides that were typed, as the API takes them, and what cannot be read, by key."""
    found: dict[str, object] = {}
    problems: dict[str, str] = {}
    for key in BATCHING_KEYS:
        text = values.get(key, "").strip()
        if not text:
            continue
        pattern = LIST_PATTERN if key == PREFERRED else NUMBER_PATTERN
        if not re.fullmatch(pattern, text, re.IGNORECASE):
            problems[key] = mismatch(key)
        elif key == PREFERRED:
            found[key] = [int(size) for size in re.findall(r"\d+", text)]
        else:
            found[key] = int(text)
    return found, problems


def typed(overrides: Mapping[str, object]) -> dict[str, str]:
    """Overrides as the form's text."""
    return {key: as_text(overrides.get(key)) for key in BATCHING_KEYS}


def as_text(value: object) -> str:
    """A value as one would type it; empty for none."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or NONE
    return str(value)


def automatic_values(entity: ServedEntity) -> dict[str, str]:
    """What the newest deployment put in force of itself, without an override."""
    return {
        field.key: as_text(field.value)
        for field in batching_in_force(entity)
        if field.source != "override"
    }
