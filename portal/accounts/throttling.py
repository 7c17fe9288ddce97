"""Slow down guessing: failed logins are counted by user and address, and by address."""

from __future__ import annotations

from datetime import datetime, timedelta

from portal.accounts.models import FailedLogin

WINDOW = timedelta(minutes=5)
MOST_FOR_A_NAME = 5
MOST_FOR_AN_ADDRESS = 50


def seconds_to_wait(username: str, address: str, now: datetime) -> int:
    """How long this name has to wait at this address before the next attempt; 0: not at all."""
    lately = FailedLogin.objects.filter(address=address, at__gt=now - WINDOW)
    waits = [
        _until_below(
            list(lately.filter(username=username).values_list("at")), MOST_FOR_A_NAME, now
        ),
        _until_below(list(lately.values_list("at")), MOST_FOR_AN_ADDRESS, now),
    ]
    return max(waits)


def note_failure(username: str, address: str, now: datetime) -> None:
    """Count a refused login, and forget those that no longer matter."""
    FailedLogin.objects.create(username=username, address=address)
    FailedLogin.objects.filter(at__lt=now - WINDOW).delete()


def forget_failures(username: str, address: str) -> None:
    """Let the count begin anew after a login that worked."""
    FailedLogin.objects.filter(username=username, address=address).delete()


def _until_below(failures: list[tuple[datetime]], most: int, now: datetime) -> int:
    """Seconds until so many of `failures` are out of the window that one more is allowed."""
    if len(failures) < most:
        return 0
    moments = sorted(at for (at,) in failures)
    left = moments[-most] + WINDOW - now
    return max(1, int(left.total_seconds()))
