"""Every route of the URL configuration, with names filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

PLACE = re.compile(r"\(\?P<(\w+)>(?:[^()]|\([^()]*\))*\)|<(?:\w+:)?(\w+)>")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@dataclass(frozen=True)
class FoundRoute:
    """A route: its address with `{name}` in the variable places, and its view."""

    template: str
    view: Any

    @property
    def is_api(self) -> bool:
        """Whether programs use it, not people."""
        return self.template.startswith(("/api/", "/.well-known/"))

    @property
    def names(self) -> list[str]:
        """The variable places."""
        return re.findall(r"{(\w+)}", self.template)

    @property
    def methods(self) -> tuple[str, ...]:
        """What a class-based view handles; nothing is known of functions."""
        view = getattr(self.view, "view_class", None) or getattr(self.view, "cls", None)
        found = [m for m in METHODS if m != "OPTIONS" and hasattr(view, m.lower())]
        return (*found, "HEAD") if "GET" in found and "HEAD" not in found else tuple(found)

    def path(self, values: Mapping[str, str]) -> str:
        """The address with these values in it."""
        return self.template.format(**{name: values[name] for name in self.names})


def all_routes() -> list[FoundRoute]:
    """Every route, in the order in which they are tried."""
    return list(_walk(get_resolver().url_patterns, ""))


def _walk(patterns: Sequence[URLPattern | URLResolver], prefix: str) -> Iterator[FoundRoute]:
    for pattern in patterns:
        text = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, text)
        else:
            yield FoundRoute(_template(text), pattern.callback)


def _template(text: str) -> str:
    text = PLACE.sub(lambda place: f"{{{place[1] or place[2]}}}", text)
    text = text.removesuffix("/?$").replace("^", "").replace("$", "")
    return "/" + re.sub(r"\\(.)", r"\1", text)
