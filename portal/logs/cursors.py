"""Where a reader stands in the logs of several replicas: one line number for each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_ENTRY = re.compile(r"([A-Za-z0-9]{1,16}):(\d{1,12})")


class BadCursor(ValueError):
    """The text is not a cursor."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Line numbers by feed; written `g7zw9:120,x0k2p:34`.

    It is also the id of a live event: what a browser sends back as Last-Event-ID tells for every
    replica which line came last, so that nothing is missed or sent twice.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Read what `str` wrote.

        Raises:
            BadCursor: It is something else.
        """
        numbers = {}
        for entry in filter(None, text.split(",")):
            found = _ENTRY.fullmatch(entry)
            if found is None:
                raise BadCursor(f"{text[:80]} is not a place in a log.")
            numbers[found[1]] = int(found[2])
        return cls(numbers)

    def __str__(self) -> str:
        return ",".join(f"{key}:{number}" for key, number in self.numbers.items())

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def of(self, key: str, *, otherwise: int = 0) -> int:
        """The number for one feed."""
        return self.numbers.get(key, otherwise)

    def moved(self, numbers: Mapping[str, int]) -> Cursor:
        """A cursor further on."""
        return Cursor({**self.numbers, **numbers})
