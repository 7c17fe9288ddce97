"""What the frame of every page needs."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse

from portal.ui.preferences import DENSITIES, THEMES, TIMES, Preference


@dataclass(frozen=True, slots=True, kw_only=True)
class NavItem:
    """A link of the rail; `current` is the value of aria-current."""

    label: str
    url: str
    icon: str
    shortcut: str
    current: str  # "page", "true" below it, "" elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    value: str
    label: str
    icon: str
    is_current: bool


def frame(request: HttpRequest) -> dict[str, object]:
    """Theme, density, times and the rail for `base.html`."""
    theme = THEMES.read(request)
    times = TIMES.read(request)
    density = DENSITIES.read(request)
    return {
        "frame": {
            "theme": theme,
            "times": times,
            "density": density,
            "themes": _choices(THEMES, theme),
            "time_zones": _choices(TIMES, times),
            "densities": _choices(DENSITIES, density),
            "nav": [
                _nav_item(request, "Endpoints", "endpoints", "endpoints", "g e", "/endpoints/"),
                _nav_item(request, "Models", "models", "models", "g m", "/models/"),
                _nav_item(request, "Settings", "settings", "settings", "g s", "/settings/"),
            ],
            "create_url": reverse("endpoint-create"),
        }
    }


def _choices(preference: Preference, current: str) -> list[Choice]:
    return [
        Choice(value=value, label=label, icon=icon, is_current=value == current)
        for value, label, icon in preference.choices
    ]


def _nav_item(
    request: HttpRequest, label: str, url_name: str, icon: str, shortcut: str, below: str
) -> NavItem:
    url = reverse(url_name)
    current = "page" if request.path == url else "true" if request.path.startswith(below) else ""
    return NavItem(label=label, url=url, icon=icon, shortcut=shortcut, current=current)
