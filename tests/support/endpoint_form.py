"""What a browser sends from the create and edit form."""

from __future__ import annotations

from typing import Any

from django.test import Client

from tests.support.factories import Person

CHECKBOX = 'name="entity-0-throughput_optimized"'


def browser(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def form(action: str = "save") -> dict[str, Any]:
    """What a browser sends for one served entity."""
    return {
        "action": action,
        "key": "k1",
        "name": "detector",
        "entity-0-model": "main.vision.detector",
        "entity-0-version": "1",
        "entity-0-workload_type": "GPU_SMALL",
        "entity-0-scale_out": "Small",
        "entity-0-min_concurrency": "4",
        "entity-0-max_concurrency": "4",
        "entity-0-name": "",
    }


def with_fields(*more: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """`form()` with fields of which the names are no Python names."""
    sent = form()
    for some in (*more, fields):
        sent |= some
    return sent


def page_of(answer: Any) -> str:
    text: str = answer.content.decode()
    return text
