"""What the frame of every page needs."""

from __future__ import annotations

from django.http import HttpRequest


def frame(request: HttpRequest) -> dict[str, object]:
    """Theme, density and the user's name for `base.html`."""
    return {}
