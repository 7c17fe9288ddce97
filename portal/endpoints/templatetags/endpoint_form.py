"""Filters for the form's templates, whose fields are named by place: `entity-0-env-1-name`."""

from __future__ import annotations

from collections.abc import Mapping

from django import template

from portal.endpoints.forms.batching import BATCHING_KEYS

register = template.Library()


@register.filter
def concat(text: object, more: object) -> str:
    """Both as one text."""
    return f"{text}{more}"


@register.filter
def at(errors: Mapping[str, str], field_id: str) -> str:
    """The message at a field; empty without one."""
    return errors.get(field_id, "")


@register.filter
def has_folded(errors: Mapping[str, str], prefix: str) -> bool:
    """Whether the folded part of a served entity holds an error."""
    folded = ("-name", "-env", *(f"-{key}" for key in BATCHING_KEYS))
    return any(key.startswith(tuple(prefix + part for part in folded)) for key in errors)
