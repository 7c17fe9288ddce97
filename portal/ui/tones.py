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


ICONS: dict[Tone, str] = {
    Tone.GOOD: "check-circle",
    Tone.BUSY: "busy",
    Tone.WARN: "warning",
    Tone.BAD: "cross-circle",
    Tone.IDLE: "idle",
}
"""The icon that goes with a tone, so that no state is told by colour alone."""


@dataclass(frozen=True, slots=True)
class Chip:
    """A state as pages show it; the reason stands beside it, in words."""

    label: str
    tone: Tone
    reason: str = ""
