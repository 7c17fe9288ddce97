"""Encrypt every secret anew, after a new key was put before the old one."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError

from portal.secrets.encryption import CannotDecrypt
from portal.secrets.services import reencrypt


class Command(BaseCommand):
    help = "Encrypt every secret anew with the first key of SHOAL_SECRETS_KEY."

    def handle(self, *args: object, **options: object) -> None:
        try:
            count = reencrypt()
        except CannotDecrypt as exc:
            raise CommandError(
                f"{exc} cannot be decrypted with any configured key; nothing was changed."
            ) from exc
        self.stdout.write(f"{count} secrets are encrypted with the first key.")
