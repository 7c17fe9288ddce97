"""Turn a preview on or off from the console."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.audit.context import acting_as
from portal.audit.states import Via
from portal.previews.services import set_enabled
from portal.rest import ApiError


class Command(BaseCommand):
    help = "Turn a preview on or off."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("state", choices=["on", "off"])

    def handle(self, *args: object, **options: object) -> None:
        try:
            with acting_as(Via.CONSOLE):
                preview = set_enabled(str(options["name"]), options["state"] == "on", None)
        except ApiError as exc:
            raise CommandError(exc.message) from exc
        self.stdout.write(f"{preview.info.title}: {'on' if preview.enabled else 'off'}")
