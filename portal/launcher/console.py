"""What `manage.py up` and `manage.py demo` have in common: start, announce, run until Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

import requests
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError

from portal import env
from portal.accounts.services import ensure_admin, ensure_groups
from portal.launcher.stack import CannotStart, Say, Stack

BEGIN = time.monotonic()


class Interrupted(Exception):
    """Ctrl-C or SIGTERM."""


def say(text: str) -> None:
    """One line on the console with the seconds since the start."""
    sys.stdout.write(f"[{time.monotonic() - BEGIN:6.1f} s] {text}\n")
    sys.stdout.flush()


def base_url() -> str:
    """Where the portal answers on this machine."""
    host = "127.0.0.1" if settings.HOST in {"0.0.0.0", "::"} else settings.HOST  # noqa: S104 - compared, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.PORT}"


def run(after_start: Callable[[Stack, Say], None]) -> None:
    """Start everything, call `after_start`, keep it alive until Ctrl-C, stop everything.

    Raises:
        CommandError: It cannot start.
    """
    os.umask(0o077)  # what the portal writes is nobody else's to read
    stack = Stack(say)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        stack.claim()
    except CannotStart as exc:
        raise CommandError(str(exc)) from exc
    try:
        say("starting Valkey" if settings.HAS_OWN_REDIS else "using the Redis that REDIS_URL names")
        stack.start_redis()
        say("preparing the database")
        call_command("migrate", verbosity=0, interactive=False)
        ensure_groups()
        admin, password = ensure_admin(env.secret("SHOAL_ADMIN_PASSWORD"))
        say("starting web, task workers and beat")
        stack.start()
        wait_until_up(stack)
        say(f"Shoal is up: {base_url()}")
        if password:
            say(f"first admin: user {admin.username}, password {password}  (shown only now)")
        else:
            name = admin.username
            say(f"log in as {name} (lost the password? manage.py changepassword {name})")
        after_start(stack, say)
        while True:
            stack.look_after()
            time.sleep(0.2)
    except CannotStart as exc:
        raise CommandError(str(exc)) from exc
    except Interrupted:
        pass
    finally:
        stack.stop()


def wait_until_up(stack: Stack, limit_s: float = 90) -> None:
    """Return once the portal answers.

    Raises:
        CannotStart: It does not within `limit_s`.
    """
    end = time.monotonic() + limit_s
    while True:
        stack.look_after()
        try:
            requests.get(f"{base_url()}/healthz", timeout=5).raise_for_status()
        except requests.RequestException as exc:
            if time.monotonic() > end:
                raise CannotStart(
                    f"The portal does not answer: see {settings.DATA_DIR}/logs."
                ) from exc
            time.sleep(0.1)
        else:
            return


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted
