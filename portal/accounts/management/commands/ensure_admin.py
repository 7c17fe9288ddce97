"""Create the first admin when there is none, and print the password once."""

from __future__ import annotations

from django.core.management.base import BaseCommand

from portal import env
from portal.accounts.services import ensure_admin
from portal.audit.context import acting_as
from portal.audit.states import Via


class Command(BaseCommand):
    help = "Create the first admin when there is none (password: SHOAL_ADMIN_PASSWORD, or random)."

    def handle(self, *args: object, **options: object) -> None:
        with acting_as(Via.CONSOLE):
            user, password = ensure_admin(env.secret("SHOAL_ADMIN_PASSWORD"))
        if password is None:
            self.stdout.write(f"There is an admin already: {user.username}.")
        else:
            self.stdout.write(f"user {user.username}, password {password}")
