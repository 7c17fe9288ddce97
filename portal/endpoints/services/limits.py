"""Rate limits and the rest of the AI gateway's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import Group

from portal.accounts.models import ADMINS, USERS, User
from portal.endpoints.services.validation import Problems
from serving.spec import LimitKey

MAX_LIMITS = 20
MAX_CALLS = 1_000_000_000
NEEDS_PRINCIPAL = {LimitKey.USER_GROUP, LimitKey.SERVICE_PRINCIPAL}


def check_rate_limits(
    limits: Sequence[Mapping[str, Any]], problems: Problems, path: str = "rate_limits"
) -> None:
    """Check keys, numbers and whom the limits name; `path` is their field's."""
    if len(limits) > MAX_LIMITS:
        problems.add(path, f"{len(limits)} rate limits; an endpoint has at most {MAX_LIMITS}.")
        return
    seen: set[tuple[str, str]] = set()
    for index, limit in enumerate(limits):
        at = f"{path}[{index}]"
        key, principal = str(limit["key"]), str(limit.get("principal") or "")
        if not 0 <= limit["calls"] <= MAX_CALLS:
            problems.add(f"{at}.calls", f"Give a whole number from 0 to {MAX_CALLS}.")
        if key not in set(LimitKey):
            problems.add(f"{at}.key", f"Give one of {', '.join(LimitKey)}.")
        elif problem := _problem_with_principal(LimitKey(key), principal):
            problems.add(f"{at}.principal", problem)
        if (key, principal) in seen:
            problems.add(at, "There is a limit with this key and principal already.")
        seen.add((key, principal))


def _problem_with_principal(key: LimitKey, principal: str) -> str:
    if not principal:
        return f"Name the {key.value.replace('_', ' ')}." if key in NEEDS_PRINCIPAL else ""
    if key is LimitKey.ENDPOINT:
        return "A limit on the endpoint names nobody."
    if key is LimitKey.USER_GROUP:
        is_known = (
            principal in {ADMINS, USERS} or Group.objects.filter(name=principal[:150]).exists()
        )
        return "" if is_known else f"There is no group “{principal[:150]}”."
    is_known = User.objects.filter(username=principal[:150]).exists()
    return "" if is_known else f"There is no user “{principal[:150]}”."
