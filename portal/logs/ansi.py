"""Terminal output as plain text: colours become spans with a class, the rest is taken out."""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPE = re.compile(
    r"\x1b\[([0-?]*)[ -/]*([@-~])"  # CSI; the colours are those that end in m
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles and links
    r"|\x1b[ -/]*[0-~]?"
)
_SHOWN = {code: 0x2400 + code for code in range(32) if code != 9} | {0x7F: 0x2421}
_SHOWN |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_STYLES = {"1": "bold", "2": "dim", "3": "italic", "4": "underline"}
_ENDS = {"22": ("bold", "dim"), "23": ("italic",), "24": ("underline",)}


class Span(NamedTuple):
    """Characters `start` to `end` look like `classes`, space separated."""

    start: int
    end: int
    classes: str


class _Look:
    """The colour and the styles in force."""

    def __init__(self) -> None:
        self.colour = ""
        self.styles: set[str] = set()

    def apply(self, parameters: str) -> None:
        codes = parameters.split(";")
        while codes:
            code = codes.pop(0).lstrip("0")
            if code == "":
                self.colour, self.styles = "", set()
            elif code in _STYLES:
                self.styles.add(_STYLES[code])
            elif code in _ENDS:
                self.styles.difference_update(_ENDS[code])
            elif code == "39":
                self.colour = ""
            elif code in {"38", "48"}:
                self._extended(code, codes)
            elif len(code) == 2 and code[0] in "39" and code[1] in "01234567":
                self.colour = _COLOURS[int(code[1])]

    def _extended(self, code: str, codes: list[str]) -> None:
        """`38;5;N` and `38;2;R;G;B`: the first sixteen have a token, others stay plain."""
        kind = codes.pop(0) if codes else ""
        taken, codes[:] = codes[: 1 if kind == "5" else 3], codes[1 if kind == "5" else 3 :]
        if code == "38":
            number = int(taken[0]) if kind == "5" and taken and taken[0].isdigit() else 16
            self.colour = _COLOURS[number % 8] if number < 16 else ""

    @property
    def classes(self) -> str:
        names = [self.colour] if self.colour else []
        return " ".join(f"ansi-{name}" for name in [*names, *sorted(self.styles)])


def read_ansi(text: str) -> tuple[str, tuple[Span, ...]]:
    """The text as it is shown, and where it has a look of its own.

    Of what a carriage return overwrote (a progress bar), the last is kept; other control characters
    are shown as their pictures.
    """
    if text.isprintable():
        return text, ()
    text = next((piece for piece in reversed(text.split("\r")) if piece), "")
    look, plain, spans, at, length = _Look(), [], [], 0, 0
    for found in [*_ESCAPE.finditer(text), None]:
        piece = text[at : found.start() if found else None].translate(_SHOWN)
        if piece and look.classes:
            spans.append(Span(length, length + len(piece), look.classes))
        plain.append(piece)
        length += len(piece)
        if found:
            at = found.end()
            if found[2] == "m":
                look.apply(found[1])
    return "".join(plain), tuple(spans)
