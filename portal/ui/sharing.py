"""The small form that shares something with a user or a group."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.http import QueryDict

from portal.rest import ApiError

MAX_NAME = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What was sent, and what is wrong with it.

    Attributes:
        kind: "user" or "group".
        who: The name of either.
        level: What they may do, where there is a choice.
        is_removal: Take it away instead.
    """

    kind: str = "user"
    who: str = ""
    level: str = ""
    is_removal: bool = False
    error: str = ""

    @classmethod
    def read(cls, form: QueryDict) -> Share:
        """From a form that was sent."""
        return cls(
            kind="group" if form.get("kind") == "group" else "user",
            who=form.get("who", "").replace("\x00", "").strip()[:MAX_NAME],
            level=form.get("level", ""),
            is_removal=form.get("action") == "remove",
        )

    @property
    def user_name(self) -> str:
        return self.who if self.kind == "user" else ""

    @property
    def group_name(self) -> str:
        return self.who if self.kind == "group" else ""

    def refused(self, error: ApiError) -> Share:
        """The same, with why it was refused."""
        words = [str(detail.get("message", "")) for detail in error.details]
        return replace(self, error=" ".join(filter(None, words)) or error.message)
