"""The tone of a state: how its chip looks. Labels and tones live beside each enum."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tone(StrEnum):
    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Chip:
    """A state as pages show it; the reason stands beside it, in words."""

    label: str
    tone: Tone
    reason: str = ""
