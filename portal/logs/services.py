"""Logs for the API: one text, as the mirrored product answers it."""

from __future__ import annotations

from portal.endpoints.models import Endpoint
from portal.logs.reading import last_page
from portal.logs.sources import Choice, NoSuchLog, open_source
from portal.rest import ResourceDoesNotExist


def service_log_text(endpoint: Endpoint, entity_name: str, limit: int) -> str:
    """The last `limit` lines of a served entity's replicas, merged by time, each with its prefix.

    Raises:
        ResourceDoesNotExist: Neither the active nor the pending config has such an entity.
    """
    try:
        source = open_source(endpoint, Choice(entity=entity_name))
    except NoSuchLog as exc:
        raise ResourceDoesNotExist(str(exc)) from exc
    return "".join(f"{row.as_text()}\n" for row in last_page(source.feeds, limit).rows)
