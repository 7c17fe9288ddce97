"""Print a new personal access token and nothing else, for automation."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.accounts.models import User
from portal.accounts.services import create_token
from portal.audit.context import acting_as
from portal.audit.states import Via
from portal.rest import ApiError


class Command(BaseCommand):
    help = "Create a personal access token for a user and print it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user")
        parser.add_argument("--comment", default="")
        parser.add_argument("--lifetime-seconds", type=int, default=None)

    def handle(self, *args: object, **options: object) -> None:
        user = User.objects.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {options['user']}.")
        lifetime_s = options["lifetime_seconds"]
        try:
            with acting_as(Via.CONSOLE):
                _, value = create_token(
                    user,
                    comment=str(options["comment"]),
                    lifetime_s=lifetime_s if isinstance(lifetime_s, int) else None,
                )
        except ApiError as exc:
            raise CommandError(exc.message) from exc
        self.stdout.write(value)
