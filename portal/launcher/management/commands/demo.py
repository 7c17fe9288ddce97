"""Start the portal and show the main job end to end: a torch model behind Triton, with proof."""

from __future__ import annotations

from django.core.management.base import BaseCommand

from portal.launcher.console import run
from portal.launcher.demo import show


class Command(BaseCommand):
    help = "Everything `up` does, then a demo model on a throughput-optimized endpoint."

    def handle(self, *args: object, **options: object) -> None:
        run(show)
