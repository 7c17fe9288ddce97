"""How a secret may be spelled in a text, and what takes all spellings out.

Used here for logs, and copied beside the code that answers for a model, for the texts of errors:
so it imports nothing of Shoal and keeps to Python 3.8.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote, quote_plus

MASK = "[masked]"
NAMES = "SHOAL_SECRET_NAMES"
"""The environment variable that names those whose values are secret, with commas between."""
LEAST_LINE = 8  # shorter lines of a secret of several lines would mask half of every text


_WRITERS: tuple[Callable[[str], str], ...] = (
    lambda text: repr(text)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: quote(text, safe=""),
    quote_plus,
)


def spellings(value: str) -> set[str]:
    """A secret as it stands, line by line, and as Python, JSON and URLs write it."""
    lines = {line.strip() for line in value.splitlines()}
    plain = {value} | {line for line in lines if len(line) >= LEAST_LINE}
    return plain | {write(text) for text in plain for write in _WRITERS}


def masker_of(values: Iterable[str]) -> Callable[[str], str]:
    """A function that masks these secrets in a text, however they are spelled there."""
    # The longest first, so that none leaves the rest of another that it is a part of.
    found = sorted({text for value in values for text in spellings(value)}, key=len, reverse=True)

    def mask(text: str) -> str:
        for secret in found:
            text = text.replace(secret, MASK)
        return text

    return mask


def masker_of_environment(environment: Mapping[str, str] = os.environ) -> Callable[[str], str]:
    """The same for the secrets that this process's environment holds now."""
    names = environment.get(NAMES, "").split(",")
    return masker_of([environment[name] for name in names if environment.get(name)])


def mask_json(body: bytes, mask: Callable[[str], str]) -> bytes:
    """A body with its texts masked, JSON or not."""
    text = body.decode("utf-8", "replace")
    try:
        return json.dumps(_masked(json.loads(text), mask)).encode()
    except (ValueError, RecursionError):
        return mask(text).encode()


def _masked(value: object, mask: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list):
        return [_masked(item, mask) for item in value]
    if isinstance(value, dict):
        return {key: _masked(item, mask) for key, item in value.items()}
    return value
