"""The Query tab: sends a real request through the gateway, as the user who is logged in.

The request takes the same road as every client's: a token (made for this one request, gone after
it) and the gateway's own checks, so that what this page shows is what a client would get.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal import bus
from portal.accounts.models import User
from portal.endpoints.models import Endpoint, ServedEntity
from portal.endpoints.pages import snippets
from portal.endpoints.pages.common import base_url, open_endpoint, page, user_of
from serving.permissions import Action
from serving.spec import Principal

TOKEN_LIFETIME_S = 700
MAX_BODY_CHARACTERS = 1_000_000
MAX_SHOWN_BYTES = 64 * 1024
UNKNOWN_TOKEN_WAIT_S = 2.0


PARTS = {
    "gateway": "gateway",
    "queue": "waiting for the model",
    "compute": "the model's call",
    "replica": "the replica",
}
"""The gateway's `Server-Timing` metrics, in words; Triton has two where others have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of a request's time."""

    label: str
    ms: float


def read_server_timing(header: str) -> dict[str, float]:
    """Durations in milliseconds by name: `gateway;dur=0.8, queue;dur=3.1`.

    Format: https://www.w3.org/TR/server-timing/
    """
    found = {}
    for metric in header.split(","):
        name, _, parameters = metric.strip().partition(";")
        duration = re.search(r"(?:^|;)\s*dur=\"?([0-9.]+)", parameters)
        if duration:
            with contextlib.suppress(ValueError):
                found[name.strip()] = float(duration[1])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the gateway answered, or why there is no answer (status 0)."""

    status: int
    reason: str
    elapsed_ms: float
    text: str
    is_cut: bool
    headers: Mapping[str, str]

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def request_id(self) -> str:
        return self.headers.get("x-request-id", "")

    @property
    def served_by(self) -> str:
        return self.headers.get("served-model-name", "")

    @property
    def split(self) -> list[Share]:
        """Where the time went, by the gateway's own account; empty without one."""
        told = read_server_timing(self.headers.get("server-timing", ""))
        return [Share(label=label, ms=told[key]) for key, label in PARTS.items() if key in told]


@page
def query(request: HttpRequest, name: str) -> HttpResponse:
    """The request form; POST sends."""
    action = Action.QUERY if request.method == "POST" else Action.SEE
    opened = open_endpoint(request, name, action=action)
    entities = _entities(opened.endpoint)
    chosen = request.POST.get("entity", request.GET.get("entity", ""))
    entity = next((e for e in entities if e.name == chosen), None)
    shown = entity or (entities[0] if entities else None)
    example = _example(shown)
    body = request.POST.get("body", example)
    answer, error = None, ""
    if request.method == "POST":
        error = _problem(body)
        if not error:
            answer = _send(user_of(request), opened.endpoint, entity, body)
    context = {
        "opened": opened,
        "endpoint": opened.endpoint,
        "tab": "query",
        "entities": entities,
        "chosen": entity.name if entity else "",
        "has_example": bool(example),
        "body": body,
        "error": error,
        "answer": answer,
        "snippets": snippets.for_endpoint(
            opened.endpoint,
            base_url(request),
            body if not error else example,
            shown.model_version.signature if shown and shown.model_version else None,
        ),
    }
    is_part = request.headers.get("HX-Target") == "answer"
    template = "endpoints/_answer.html" if is_part else "endpoints/query.html"
    return render(request, template, context, status=400 if error and not is_part else 200)


def _entities(endpoint: Endpoint) -> list[ServedEntity]:
    config = endpoint.active_config or endpoint.pending_config
    return list(config.entities.select_related("model_version")) if config else []


def _example(entity: ServedEntity | None) -> str:
    """The model's input example as a request body; empty without one."""
    if entity is None or entity.model_version is None or not entity.model_version.input_example:
        return ""
    return compact_json(entity.model_version.input_example)


def compact_json(value: object) -> str:
    """Indented JSON in which lists of plain values stay on one line."""
    return _layout(value, "")


def _layout(value: object, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, dict) and value:
        items = (f"{inner}{json.dumps(k)}: {_layout(v, inner)}" for k, v in value.items())
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (list, dict)) for item in value):
        items = (inner + _layout(item, inner) for item in value)
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def _problem(body: str) -> str:
    """What is wrong with a body before it is sent; the rest is the gateway's to say."""
    if len(body) > MAX_BODY_CHARACTERS:
        return "This is longer than 1,000,000 characters. Send it with curl or Python."
    try:
        json.loads(body)
    except ValueError as exc:
        return f"This is not JSON: {exc}."
    return ""


def _send(user: User, endpoint: Endpoint, entity: ServedEntity | None, body: str) -> Answer:
    """Send `body` with a token of this one request's own."""
    path = f"/serving-endpoints/{endpoint.name}/invocations"
    if entity is not None:
        path = f"/serving-endpoints/{endpoint.name}/served-models/{entity.name}/invocations"
    token = secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    bus.publish_principal(
        digest,
        Principal(
            user_id=str(user.pk),
            user_name=user.username,
            is_admin=user.is_workspace_admin,
            groups=tuple(sorted(user.group_names)),
            expires_at=time.time() + TOKEN_LIFETIME_S,
        ),
    )
    try:
        return _ask(path, token, body)
    finally:
        bus.remove_principal(digest)


def _ask(path: str, token: str, body: str) -> Answer:
    """Ask until the gateway has heard of the token, which takes it a moment."""
    deadline = time.monotonic() + UNKNOWN_TOKEN_WAIT_S
    while True:
        answer = _post(path, token, body)
        if answer.status != 401 or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def _post(path: str, token: str, body: str) -> Answer:
    host = "127.0.0.1" if settings.HOST in {"0.0.0.0", "::"} else settings.HOST  # noqa: S104 - where we listen
    connection = http.client.HTTPConnection(
        host, settings.PORT, timeout=settings.REQUEST_TIMEOUT_S + 5
    )
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    start = time.perf_counter()
    try:
        connection.request("POST", path, body.encode(), headers)
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as exc:
        return Answer(
            status=0,
            reason=f"The gateway did not answer: {exc}.",
            elapsed_ms=(time.perf_counter() - start) * 1000,
            text="",
            is_cut=False,
            headers={},
        )
    finally:
        connection.close()
    elapsed_ms = (time.perf_counter() - start) * 1000
    return Answer(
        status=response.status,
        reason=response.reason,
        elapsed_ms=elapsed_ms,
        text=_pretty(content),
        is_cut=len(content) > MAX_SHOWN_BYTES,
        headers={key.lower(): value for key, value in response.getheaders()},
    )


def _pretty(content: bytes) -> str:
    """The answer, laid out when it is JSON, at most as much as a page can show."""
    text = content.decode(errors="replace")
    if len(content) <= MAX_SHOWN_BYTES:
        with contextlib.suppress(ValueError):
            text = compact_json(json.loads(text))
    return text[:MAX_SHOWN_BYTES]
