"""For the reference page."""

from __future__ import annotations

import re

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()


@register.filter
def code_words(text: str) -> SafeString:
    """A text with what stands between backquotes as code."""
    pieces = re.split(r"`([^`]*)`", text)
    return format_html_join(
        "",
        "{}",
        (
            (format_html("<code>{}</code>", piece) if number % 2 else piece,)
            for number, piece in enumerate(pieces)
        ),
    )
