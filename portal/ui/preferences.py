"""Taste, kept in cookies so that the first byte is right: theme, times, density."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

YEAR_S = 365 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """One choice; the first of `choices` (value, label, icon) holds without a cookie."""

    name: str
    choices: tuple[tuple[str, str, str], ...]

    def read(self, request: HttpRequest) -> str:
        """The caller's choice."""
        value = request.COOKIES.get(self.name, "")
        return value if value in self.values else self.choices[0][0]

    @property
    def values(self) -> tuple[str, ...]:
        """What may be chosen."""
        return tuple(value for value, _, _ in self.choices)


THEMES = Preference(
    name="theme",
    choices=(("system", "System", "system"), ("light", "Light", "sun"), ("dark", "Dark", "moon")),
)
TIMES = Preference(name="times", choices=(("utc", "UTC", ""), ("local", "Local", "")))
DENSITIES = Preference(
    name="density", choices=(("normal", "Normal", ""), ("compact", "Compact", ""))
)


@require_POST
def preferences(request: HttpRequest) -> HttpResponse:
    """Keep what was chosen and go back to the page."""
    back = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}):
        back = "/"
    response = HttpResponseRedirect(back)
    for preference in (THEMES, TIMES, DENSITIES):
        value = request.POST.get(preference.name)
        if value in preference.values:
            response.set_cookie(
                preference.name,
                str(value),
                max_age=YEAR_S,
                samesite="Lax",
                secure=request.is_secure(),
                httponly=True,
            )
    return response
