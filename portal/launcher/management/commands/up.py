"""Start the portal with everything it needs and keep it running until Ctrl-C."""

from __future__ import annotations

from django.core.management.base import BaseCommand

from portal.launcher.console import run
from portal.launcher.stack import Say, Stack


class Command(BaseCommand):
    help = "Start Valkey, the web processes, task workers and beat; stop them all with Ctrl-C."

    def handle(self, *args: object, **options: object) -> None:
        run(self._announce)

    def _announce(self, stack: Stack, say: Say) -> None:
        say("press Ctrl-C to stop everything")
