"""Template tags and filters that every page has (a builtin library)."""

from __future__ import annotations

from django import template

register = template.Library()
