"""Rate limits on the Settings tab: what is in force, and a form for the two common ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from portal.endpoints import services
from portal.endpoints.models import Endpoint
from portal.endpoints.pages.common import open_endpoint, page, user_of
from portal.endpoints.routes import rate_limits
from portal.rest import InvalidParameterValue
from serving.permissions import Action
from serving.spec import LimitKey

FORM_KEYS = (LimitKey.ENDPOINT, LimitKey.USER)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """A limit in people's words."""

    whose: str
    calls: int


def limit_rows(endpoint: Endpoint) -> list[LimitRow]:
    """The limits in force, those of the whole endpoint first."""
    words = {
        LimitKey.ENDPOINT: "All callers together",
        LimitKey.USER: "Each user",
        LimitKey.USER_GROUP: "Members of a group together",
        LimitKey.SERVICE_PRINCIPAL: "A service principal",
    }
    order = list(LimitKey)
    return [
        LimitRow(whose=limit.principal or words[limit.key], calls=limit.calls)
        for limit in sorted(rate_limits(endpoint), key=lambda item: order.index(item.key))
    ]


def form_values(endpoint: Endpoint) -> dict[str, int]:
    """The numbers that the form shows, by its fields."""
    return {limit["key"]: limit["calls"] for limit in _kept(endpoint) if not limit.get("principal")}


@page
@require_POST
def change_limits(request: HttpRequest, name: str) -> HttpResponse:
    """Set or take away the limits of the form; those that name somebody stay."""
    endpoint = open_endpoint(request, name, action=Action.UPDATE_LIMITS).endpoint
    named = [limit for limit in _kept(endpoint) if limit.get("principal")]
    try:
        wanted = [limit for key in FORM_KEYS if (limit := _read(request, key)) is not None]
        gateway = {k: v for k, v in endpoint.ai_gateway.items() if k != "rate_limits"}
        gateway |= {"rate_limits": wanted + named} if wanted + named else {}
        services.set_ai_gateway(user_of(request), endpoint, gateway)
    except InvalidParameterValue as exc:
        messages.error(request, exc.message)
    else:
        messages.success(request, "The rate limits are changed; they are in force now.")
    return redirect("endpoint-settings", name)


def _kept(endpoint: Endpoint) -> list[dict[str, Any]]:
    return list(endpoint.ai_gateway.get("rate_limits", ()))


def _read(request: HttpRequest, key: LimitKey) -> dict[str, Any] | None:
    text = request.POST.get(key.value, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise InvalidParameterValue(f"“{text[:20]}” is not a number of calls.")
    return {"key": key.value, "calls": int(text), "renewal_period": "minute"}
