"""Everybody who can come to an endpoint, one of each kind, and what a table says of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from portal.accounts.services import create_token
from portal.endpoints.models import Endpoint
from tests.support.factories import Cast, Person, UserFactory, live_endpoint, make_cast

WHO = ("admin", "creator", "manager", "querier", "viewer", "stranger", "anonymous")
"""The columns of the tables."""


@dataclass(frozen=True)
class Scene:
    """A live endpoint and everybody who may come to it."""

    endpoint: Endpoint
    cast: Cast
    creator: Person

    def person(self, who: str) -> Person | None:
        """One of `WHO`; nobody for anonymous."""
        if who == "anonymous":
            return None
        found = self.creator if who == "creator" else getattr(self.cast, who)
        assert isinstance(found, Person)
        return found


def make_scene() -> Scene:
    """A live endpoint of somebody's, shared with the cast."""
    user = UserFactory(username="creator")
    creator = Person(user=user, token=create_token(user, comment="tests")[1])
    cast = make_cast()
    endpoint = cast.share(live_endpoint(creator=user, endpoint_name="detector"))
    return Scene(endpoint=endpoint, cast=cast, creator=creator)


def cells(table: str, columns: Sequence[str] = WHO) -> list[tuple[str, str, int]]:
    """Row, column and expected status of every cell of a table that is written as text."""
    found = []
    for line in table.strip().splitlines():
        row, *expected = re.split(r"\s*[|]\s*|(?<=\d)\s+", line.strip())
        found += [(row, c, int(s)) for c, s in zip(columns, expected, strict=True)]
    return found
