"""Signed links to parts, uploads and downloads: they carry their own authority and its end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.core import signing
from django.utils.dateparse import parse_datetime

SALT = "shoal.transfer"
TRANSFER_PREFIX = "/api/2.0/fs/transfer/"
LIFETIME_S = 3600


class LinkKind(StrEnum):
    PART = "part"
    UPLOAD = "put"
    DOWNLOAD = "get"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a signed link allows.

    Attributes:
        session: A part's upload session; "" for the other kinds.
        number: A part's number, from 1.
        path: Of the file that is uploaded or downloaded.
        user_pk: Who asked for the link; the rights to read or write are looked up at its use.
    """

    kind: LinkKind
    expires_at: float
    session: str = ""
    number: int = 0
    path: str = ""
    user_pk: int = 0

    @property
    def is_expired(self) -> bool:
        """Whether its time is over."""
        return time.time() > self.expires_at


class BadLink(Exception):
    """The link was not made here, or was changed."""


def sign(link: Link) -> str:
    """The path of a signed link."""
    fields = [
        link.kind.value,
        round(link.expires_at),
        link.session,
        link.number,
        link.path,
        link.user_pk,
    ]
    return TRANSFER_PREFIX + signing.dumps(fields, salt=SALT)


def read_link(token: str) -> Link:
    """What a signed link allows; it may be expired.

    Raises:
        BadLink: It was not made here, or was changed.
    """
    try:
        fields: list[Any] = signing.loads(token, salt=SALT)
        kind, expires_at, session, number, path, user_pk = fields
    except (signing.BadSignature, ValueError, TypeError) as exc:
        raise BadLink from exc
    return Link(
        kind=LinkKind(kind),
        expires_at=expires_at,
        session=session,
        number=number,
        path=path,
        user_pk=user_pk,
    )


def expiry(wanted: str) -> float:
    """When a link ends: as the client wants it, within a day; an hour where it does not say."""
    now = time.time()
    try:
        when = parse_datetime(wanted)
    except ValueError:
        when = None
    if when is None:
        return now + LIFETIME_S
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(when.timestamp(), now + settings.UPLOAD_EXPIRES_S)


def shown_time(seconds: float) -> str:
    """A time as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
