"""The create and edit form: its fields, its choices, its checks and its summary."""

from __future__ import annotations

from portal.endpoints.forms.choices import EntityChoices, all_choices, choices_of
from portal.endpoints.forms.fields import EndpointFields, EntityFields
from portal.endpoints.forms.parse import Errors, labels, parse, place
from portal.endpoints.forms.summary import Summary, summarize

__all__ = [
    "EndpointFields",
    "EntityChoices",
    "EntityFields",
    "Errors",
    "Summary",
    "all_choices",
    "choices_of",
    "labels",
    "parse",
    "place",
    "summarize",
]
