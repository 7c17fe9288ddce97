"""Rules between settings, as Django's system checks: each with an id and what to do.

They run at every start of `manage.py up` and with `manage.py check`; an error stops the start.
A portal is *exposed* when it listens beyond this machine or has a public URL.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register

MIN_KEY_LENGTH = 50
MIN_KEY_CHARACTERS = 12
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def is_exposed() -> bool:
    """Whether anybody but this machine's users can reach the portal."""
    return not settings.IS_LOOPBACK or bool(settings.PUBLIC_URL)


@register(Tags.security)
def debug_mode_stays_at_home(**_: Any) -> Sequence[CheckMessage]:
    """Django's debug pages show settings and source code."""
    if not (settings.DEBUG and is_exposed()):
        return []
    return [
        Error(
            "SHOAL_DEBUG is on while others can reach the portal.",
            hint="Unset SHOAL_DEBUG, or listen on 127.0.0.1 without SHOAL_PUBLIC_URL.",
            id="shoal.E001",
        )
    ]


@register(Tags.security)
def hosts_are_named(**_: Any) -> Sequence[CheckMessage]:
    """A request's Host ends up in links; with "*", its sender chooses it."""
    if "*" not in settings.ALLOWED_HOSTS or not is_exposed():
        return []
    return [
        checks.Warning(
            "SHOAL_ALLOWED_HOSTS is * while others can reach the portal.",
            hint="Name the hosts that clients use, or set SHOAL_PUBLIC_URL, which names its own.",
            id="shoal.W002",
        )
    ]


@register(Tags.security)
def data_is_private(**_: Any) -> Sequence[CheckMessage]:
    """Models, tokens' hashes, secrets and logs lie in the data directory."""
    messages: list[CheckMessage] = []
    directory = Path(settings.DATA_DIR)
    if _is_open(directory):
        messages.append(
            checks.Warning(
                f"Other users of this machine can look into the data directory {directory}.",
                hint=f"chmod 700 {directory}",
                id="shoal.W003",
            )
        )
    key = directory / "secret_key"
    if _is_open(key):
        messages.append(
            Error(
                f"Other users of this machine can read the secret key in {key}.",
                hint=f"chmod 600 {key}; if somebody may have read it, delete it: people log in "
                "again, and secrets that were stored with it must be set again.",
                id="shoal.E003",
            )
        )
    return messages


@register(Tags.security)
def key_is_strong(**_: Any) -> Sequence[CheckMessage]:
    """Who guesses the key can sign sessions and upload links."""
    key = str(settings.SECRET_KEY)
    is_strong = len(key) >= MIN_KEY_LENGTH and len(set(key)) >= MIN_KEY_CHARACTERS
    if is_strong or not is_exposed():
        return []
    return [
        Error(
            "SHOAL_SECRET_KEY can be guessed: it is short or repeats few characters.",
            hint="Unset it, and a strong one is made and kept in the data directory; or set it to "
            f"{MIN_KEY_LENGTH} random characters.",
            id="shoal.E004",
        )
    ]


@register(Tags.security)
def traffic_is_encrypted(**_: Any) -> Sequence[CheckMessage]:
    """Tokens and passwords travel in each request."""
    if not is_exposed() or settings.IS_HTTPS:
        return []
    return [
        checks.Warning(
            "Others can reach the portal without TLS: tokens and passwords can be read on the way.",
            hint="Put a proxy that speaks TLS in front and set SHOAL_PUBLIC_URL=https://...",
            id="shoal.W005",
        )
    ]


@register(Tags.security)
def proxies_are_few(**_: Any) -> Sequence[CheckMessage]:
    """Whoever is trusted says who the caller is and whether TLS was used."""
    if all(network.prefixlen for network in settings.TRUSTED_PROXIES):
        return []
    return [
        checks.Warning(
            "SHOAL_TRUSTED_PROXIES trusts every address: callers can pretend to be anybody.",
            hint="Name the proxy's own address or network.",
            id="shoal.W006",
        )
    ]


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & OTHERS)
    except FileNotFoundError:
        return False
