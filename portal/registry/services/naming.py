"""Names of models, versions, aliases and tags: what they may look like."""

from __future__ import annotations

import re

from portal.rest import InvalidParameterValue

LEVEL = re.compile(r"[\w-]{1,100}")
ALIAS = re.compile(r"[\w-]{1,255}")
RESERVED_ALIAS = re.compile(r"latest|v?\d+", re.IGNORECASE)
VERSION = re.compile(r"[1-9]\d{0,8}", re.ASCII)


def checked_model_name(name: str) -> str:
    """The name if it has three levels of letters, digits, `_` and `-`.

    Raises:
        InvalidParameterValue: It has not; the clients know the phrase about the three levels.
    """
    levels = name.split(".")
    if len(levels) != 3 or not all(levels):
        raise InvalidParameterValue(
            f"{shown(name)} is not a model's full name. Please specify all three levels of the "
            "name, as in <catalog>.<schema>.<model>."
        )
    if not all(LEVEL.fullmatch(level) for level in levels):
        raise InvalidParameterValue(
            f"{shown(name)} cannot be a model's name. Please specify all three levels of the name, "
            "each of at most 100 letters, digits, hyphens and underscores."
        )
    return name


def checked_version(version: str) -> int:
    """The version as a number.

    Raises:
        InvalidParameterValue: It is not a number.
    """
    if not VERSION.fullmatch(version):
        raise InvalidParameterValue(
            f"{shown(version)} is not a model version. Give its number, such as 3."
        )
    return int(version)


def checked_alias(alias: str) -> str:
    """The alias if it may be one.

    Raises:
        InvalidParameterValue: It may not.
    """
    if not ALIAS.fullmatch(alias) or RESERVED_ALIAS.fullmatch(alias):
        raise InvalidParameterValue(
            f"{shown(alias)} cannot be an alias. Use letters, digits, hyphens and underscores; "
            "latest, numbers, and v with a number are reserved."
        )
    return alias


def shown(text: str) -> str:
    """What a caller sent, fit for a message."""
    return repr(text if len(text) <= 120 else f"{text[:120]}…")
