"""The log viewer: its page, the lines behind it, the live stream, the download."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_required
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from portal.accounts.models import User
from portal.endpoints.models import Endpoint
from portal.endpoints.pages.common import live, open_endpoint, page, user_of
from portal.endpoints.services import get_endpoint, require
from portal.logs.cursors import BadCursor, Cursor
from portal.logs.events import follow
from portal.logs.filters import BadPattern, Filter
from portal.logs.levels import Level
from portal.logs.queries import LogQuery
from portal.logs.reading import (
    MAX_PAGE_LINES,
    Page,
    last_page,
    newer_page,
    older_page,
    page_around,
    page_at,
    search_last,
    search_newer,
    search_older,
    tail,
)
from portal.logs.sources import NoSuchLog, Source, open_source, picker
from portal.logs.status import triton_rows
from portal.rest import PermissionDenied, ResourceDoesNotExist
from serving.permissions import Action

AROUND = 25  # lines before and after a permalink's
NO_SUCH_LOG = "There is no such log, or you may not see it."
TEXT_SIZES = ("small", "normal", "large", "larger")
MOVING_S = 3
QUIET_S = 15


@require_GET
@page
def logs(request: HttpRequest, name: str) -> HttpResponse:
    """The viewer; it works without script as pages of lines with a filter form."""
    opened = open_endpoint(request, name, action=Action.READ_LOGS)
    endpoint = opened.endpoint
    query = LogQuery.read(request.GET)
    source = _source(endpoint, query)
    found, problem = _page_or_problem(source, query)
    context = {
        "opened": opened,
        "endpoint": endpoint,
        "tab": "logs",
        "source": source,
        "query": query,
        "page": found,
        "problem": problem,
        "groups": picker(endpoint),
        "levels": [(level, level in query.filter.levels) for level in Level],
        "older": query.address(before=str(found.first)) if found.has_older and found.rows else "",
        "newer": query.address(after=str(found.last)) if found.has_newer else "",
        "wraps": request.COOKIES.get("log_wrap") == "1",
        "times": request.COOKIES.get("log_times", ""),
        "size": _size(request),
        **_triton(endpoint, query),
    }
    return render(request, "logs/logs.html", context, status=400 if problem else 200)


def _size(request: HttpRequest) -> str:
    """How large this reader likes the text."""
    found = request.COOKIES.get("log_size", "")
    return found if found in TEXT_SIZES else "normal"


@require_GET
@page
def log_status(request: HttpRequest, name: str) -> HttpResponse:
    """What is known about Triton, for the live region above the log."""
    endpoint = open_endpoint(request, name, action=Action.READ_LOGS).endpoint
    return live(request, "logs/_triton.html", _triton(endpoint, LogQuery.read(request.GET)))


def _triton(endpoint: Endpoint, query: LogQuery) -> dict[str, object]:
    rows = triton_rows(endpoint, query.choice)
    return {
        "endpoint": endpoint,
        "query": query,
        "triton": rows,
        "poll_s": MOVING_S if any(row.is_moving for row in rows) else QUIET_S,
        "whole": LogQuery(choice=query.choice).address(),
        "seen": "",
    }


@require_GET
@never_cache
def log_lines(request: HttpRequest, name: str) -> JsonResponse:
    """A page of lines as JSON: the newest, those before or after a cursor, or around a line."""
    if not request.user.is_authenticated:
        return JsonResponse({"message": "Log in again, then reload the page."}, status=401)
    query = LogQuery.read(request.GET)
    source = _visible_source(user_of(request), name, query)
    if source is None:
        return JsonResponse({"message": NO_SUCH_LOG}, status=404)
    found, problem = _page_or_problem(source, query)
    if problem:
        return JsonResponse({"message": problem}, status=400)
    newest = tail(source.feeds)
    return JsonResponse(
        {
            "lines": [row.as_json() for row in found.rows],
            "first": str(found.first),
            "last": str(found.last),
            "has_older": found.has_older,
            "has_newer": found.has_newer,
            "behind": sum(max(newest.of(key) - found.last.of(key), 0) for key in newest),
            "looked": found.looked,
            "looked_to": found.looked_to,
            "ended": source.ended,
        }
    )


@require_GET
async def log_stream(request: HttpRequest, name: str) -> HttpResponse | StreamingHttpResponse:
    """The log as server-sent events, from the last line that the reader has."""
    user = await request.auser()
    if not isinstance(user, User):
        return JsonResponse({"message": "Log in again, then reload the page."}, status=401)
    query = LogQuery.read(request.GET)
    source = await sync_to_async(_visible_source)(user, name, query)
    if source is None:
        return JsonResponse({"message": NO_SUCH_LOG}, status=404)
    asked = request.headers.get("Last-Event-ID", request.GET.get("cursor"))
    try:
        cursor = Cursor.parse(asked) if asked is not None else None
    except BadCursor as exc:
        return JsonResponse({"message": str(exc)}, status=400)
    if cursor is None:
        cursor = await asyncio.to_thread(tail, source.feeds)

    async def reopen() -> Source | None:
        return await sync_to_async(_reopen)(user, name, query)

    response = StreamingHttpResponse(
        follow(source, reopen, cursor), content_type="text/event-stream"
    )
    response["Cache-Control"] = "no-cache, no-transform"
    response["X-Accel-Buffering"] = "no"  # or nginx would keep the lines back
    return response


@require_GET
@login_required
async def log_download(request: HttpRequest, name: str) -> HttpResponse | StreamingHttpResponse:
    """The kept lines as plain text, whole or filtered, streamed in the order of the view."""
    user = await request.auser()
    assert isinstance(user, User)  # noqa: S101 - for the type checker: login_required saw to it
    query = LogQuery.read(request.GET)
    if query.problem:
        return HttpResponse(f"{query.problem}\n", status=400, content_type="text/plain")
    source = await sync_to_async(_visible_source)(user, name, query)
    if source is None:
        return HttpResponse(f"{NO_SUCH_LOG}\n", status=404, content_type="text/plain")
    text = _text(source, query.filter, with_time=request.GET.get("times") == "1")
    response = StreamingHttpResponse(text, content_type="text/plain; charset=utf-8")
    file_name = f"{name}-{source.file_part}-{timezone.now():%Y%m%dT%H%M%SZ}.log"
    as_page = request.GET.get("open") == "1"
    kind = "inline" if as_page else "attachment"
    response["Content-Disposition"] = f'{kind}; filename="{file_name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


async def _text(source: Source, wanted: Filter, *, with_time: bool) -> AsyncIterator[str]:
    end = await asyncio.to_thread(tail, source.feeds)
    cursor = Cursor()
    while True:
        found = await asyncio.to_thread(newer_page, source.feeds, cursor, MAX_PAGE_LINES)
        if not found.rows:
            return
        cursor = found.last
        try:
            rows = await asyncio.to_thread(wanted.apply, found.rows)
        except BadPattern as exc:
            yield f"{exc}\n"
            return
        yield "".join(f"{row.as_text(with_time=with_time)}\n" for row in rows)
        if all(cursor.of(key) >= end.of(key) for key in end):
            return  # what was written since is not chased


# ---------------------------------------------------------------- shared steps


def _source(endpoint: Endpoint, query: LogQuery) -> Source:
    try:
        return open_source(endpoint, query.choice)
    except NoSuchLog as exc:
        raise Http404(str(exc)) from exc


def _visible_source(user: User, name: str, query: LogQuery) -> Source | None:
    try:
        endpoint = get_endpoint(user, name)
        require(user, endpoint, Action.READ_LOGS)
        return open_source(endpoint, query.choice)
    except (ResourceDoesNotExist, PermissionDenied, NoSuchLog):
        return None


def _reopen(user: User, name: str, query: LogQuery) -> Source | None:
    """As `_visible_source`; a stream lives for hours, so it holds no database connection."""
    try:
        return _visible_source(User.objects.get(pk=user.pk, is_active=True), name, query)
    except User.DoesNotExist:
        return None
    finally:
        if not connection.in_atomic_block:
            connection.close()


def _page_or_problem(source: Source, query: LogQuery) -> tuple[Page, str]:
    try:
        return _page(source, query), query.problem
    except BadPattern as exc:
        return last_page(source.feeds, query.limit), str(exc)


def _page(source: Source, query: LogQuery) -> Page:
    feeds, wanted = source.feeds, query.filter
    if query.line and query.choice.replica and query.before is query.after is None:
        return _marked(page_around(feeds[0], query.line, AROUND), wanted)
    if query.at is not None and query.before is query.after is None:
        return _marked(page_at(feeds, query.at, query.limit // 2), wanted)
    if not wanted or (query.mode == "highlight" and not wanted.levels):
        return _marked(_plain_page(source, query), wanted)
    if query.before is not None:
        return search_older(feeds, query.before, wanted, query.limit)
    if query.after is not None:
        return search_newer(feeds, query.after, wanted, query.limit)
    return search_last(feeds, wanted, query.limit)


def _marked(found: Page, wanted: Filter) -> Page:
    marks = replace(wanted, levels=frozenset())
    return replace(found, rows=marks.apply(found.rows, keep_others=True))


def _plain_page(source: Source, query: LogQuery) -> Page:
    if query.before is not None:
        return older_page(source.feeds, query.before, query.limit)
    if query.after is not None:
        return newer_page(source.feeds, query.after, query.limit)
    return last_page(source.feeds, query.limit)
