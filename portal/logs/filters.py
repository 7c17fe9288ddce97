"""What a reader looks for: text or a regular expression, and levels."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from portal.logs.levels import Level
from portal.logs.rows import Row

MAX_PATTERN_CHARACTERS = 500
_CHILD = Path(__file__).with_name("match_child.py")
_CHILD_TIMEOUT_S = 3.0

Matches = list[tuple[int, int]]


class BadPattern(ValueError):
    """The pattern cannot be used; the message says how to mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows are wanted; an empty one wants all.

    Raises:
        BadPattern: The pattern is too long or not a regular expression.
    """

    text: str = ""
    is_regex: bool = False
    match_case: bool = False
    levels: frozenset[Level] = frozenset()

    def __post_init__(self) -> None:
        if len(self.text) > MAX_PATTERN_CHARACTERS:
            raise BadPattern(f"Search for at most {MAX_PATTERN_CHARACTERS} characters.")
        if self.is_regex:
            try:
                re.compile(self.text)
            except (re.error, RecursionError, OverflowError) as exc:
                raise BadPattern(f"Not a regular expression: {exc}.") from exc

    def __bool__(self) -> bool:
        return bool(self.text or self.levels)

    def apply(self, rows: Sequence[Row], *, keep_others: bool = False) -> list[Row]:
        """The wanted rows, with their matches marked.

        Args:
            rows: In any order.
            keep_others: Only mark: rows without a match stay (those of other levels go).

        Raises:
            BadPattern: The regular expression takes too long.
        """
        wanted = [row for row in rows if not self.levels or row.level in self.levels]
        if not self.text:
            return wanted
        found = self._find([row.text for row in wanted])
        return [
            replace(row, matches=tuple((start, end) for start, end in matches or ()))
            for row, matches in zip(wanted, found, strict=True)
            if matches is not None or keep_others
        ]

    def _find(self, texts: list[str]) -> list[Matches | None]:
        if self.is_regex:
            return _find_in_child(self.text, texts, match_case=self.match_case)
        pattern = re.compile(re.escape(self.text), 0 if self.match_case else re.IGNORECASE)
        return [[m.span() for m in pattern.finditer(text)] or None for text in texts]


def _find_in_child(pattern: str, texts: list[str], *, match_case: bool) -> list[Matches | None]:
    """Match in a process of its own: a pattern that backtracks without end can be killed there."""
    question = json.dumps({"pattern": pattern, "match_case": match_case, "texts": texts})
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_CHILD)],
            input=question,
            capture_output=True,
            text=True,
            timeout=_CHILD_TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired as exc:
        raise BadPattern(
            "This pattern takes too long. Avoid a repetition inside a repetition."
        ) from exc
    except subprocess.CalledProcessError as exc:
        raise BadPattern("This pattern could not be used.") from exc
    answer: list[Matches | None] = json.loads(done.stdout)
    return answer
