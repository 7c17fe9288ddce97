"""How bad a line is: Triton's own letters, Python's words, and which lines belong to which.

A traceback, a table or an indented rest belongs to the line before it, so that a filter keeps it
whole.
"""

from __future__ import annotations

import re
from enum import StrEnum


class Level(StrEnum):
    """The mark beside a line; the letters are Triton's, D is Python's DEBUG."""

    FATAL = "F"
    ERROR = "E"
    WARNING = "W"
    INFO = "I"
    DEBUG = "D"
    PLAIN = "P"  # printed without a level

    @property
    def label(self) -> str:
        """The word for people."""
        return "No level" if self is Level.PLAIN else self.name.capitalize()


_TRITON = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ ")
_TRITON_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ? ([IWEF]) ")
_STAMP = r"\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|[+-]\d\d:?\d\d))?\]?"
_WORD = r"\[?(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\]?(?=[\s:|\]-]|$)"
_PYTHON = re.compile(rf"{_WORD}|{_STAMP}[\s|:-]*(?:[\w.\[\]]{{1,80}}[\s|:-]+){{0,2}}?{_WORD}")
_WARNING = re.compile(r"\S+:\d+: \w*Warning: ")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?::|$)")
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
_TROUBLE = re.compile(r"exit code [1-9]|was killed|not started again|does not|were lost")
_RESTS = (" ", "\t", "+-", "|", "At:")

_PYTHON_LEVELS = {
    "DEBUG": Level.DEBUG,
    "INFO": Level.INFO,
    "WARNING": Level.WARNING,
    "WARN": Level.WARNING,
    "ERROR": Level.ERROR,
    "CRITICAL": Level.FATAL,
    "FATAL": Level.FATAL,
}


def level_of(text: str) -> Level | None:
    """The level that the line itself states, None when it states none."""
    if found := _TRITON.match(text) or _TRITON_ISO.match(text):
        return Level(found[1])
    if found := _PYTHON.match(text):
        return _PYTHON_LEVELS[found[1] or found[2]]
    if _WARNING.match(text):
        return Level.WARNING
    if text.startswith(_TRACEBACK) or _EXCEPTION.match(text):
        return Level.ERROR
    return None


def own_level(text: str) -> Level:
    """The level of the supervisor's own words."""
    return Level.ERROR if _TROUBLE.search(text) else Level.INFO


class LevelReader:
    """Gives one replica's lines their levels, in the order in which they were written."""

    def __init__(self) -> None:
        self._level = Level.PLAIN
        self._in_traceback = False
        self._is_chained = False

    def read(self, text: str) -> tuple[Level, bool]:
        """The line's level, and whether it begins an entry of its own."""
        if text.startswith(_TRACEBACK):
            is_head = not self._is_chained
            self._in_traceback, self._is_chained = True, False
            self._level = Level.ERROR
            return Level.ERROR, is_head
        if not text.strip() or text.startswith(_RESTS):
            return self._level, False
        if self._level is Level.ERROR and text.startswith(_CHAINED):
            self._is_chained = True
            return self._level, False
        stated = level_of(text)
        if self._in_traceback:
            self._in_traceback = False
            if stated is None or _EXCEPTION.match(text):
                return Level.ERROR, False
        self._is_chained = False
        self._level = stated or Level.PLAIN
        return self._level, True
