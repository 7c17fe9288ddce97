"""Take known secrets out of lines of a log."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from serving.replica.log_lines import LEFT_OUT
from serving.replica.shoal_masking import MASK

LEAST_PART = 4
"""So much of a secret's beginning, at the place where a long line was cut, gives it away."""

_CUT_LINE = re.compile(rf"(.*?)\ufffd?( \[\d+{LEFT_OUT}\])", re.DOTALL)


def mask_of(secrets: Sequence[str]) -> Callable[[str], str]:
    """Give a function that masks these secrets in a line, the longest first."""
    ordered = sorted(secrets, key=len, reverse=True)

    def mask(line: str) -> str:
        for secret in ordered:
            line = line.replace(secret, MASK)
        if ordered and line.endswith(f"{LEFT_OUT}]") and (cut := _CUT_LINE.fullmatch(line)):
            return _mask_end(cut[1], ordered) + cut[2]
        return line

    return mask


def _mask_end(text: str, secrets: Sequence[str]) -> str:
    """Mask the beginning of a secret whose rest was cut off."""
    for secret in secrets:
        at = max(0, len(text) - len(secret) + 1)
        while (at := text.find(secret[:LEAST_PART], at)) >= 0:
            if secret.startswith(text[at:]):
                return text[:at] + MASK
            at += 1
    return text
