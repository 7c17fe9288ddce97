"""Template tags and filters that every page has (a builtin library)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from portal.ui.tones import ICONS, Chip, Tone

if TYPE_CHECKING:
    from django.forms import BaseForm
    from django.forms.boundfield import BoundField

register = template.Library()

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
UNITS = ((DAY_S, "day"), (HOUR_S, "h"), (MINUTE_S, "min"), (1, "s"))
BINARY_UNITS = ((1, "KiB"), (2, "MiB"), (3, "GiB"), (4, "TiB"), (5, "PiB"))
MAX_PRETTY_CHARACTERS = 20_000
PRETTY_WIDTH = 96

MESSAGE_TONES = {
    "success": Tone.GOOD,
    "info": Tone.BUSY,
    "warning": Tone.WARN,
    "error": Tone.BAD,
}


# ---------------------------------------------------------------- states


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """An icon of the sprite; decoration unless it has a label."""
    href = f"{static('icons.svg')}#{name}"
    if label:
        return format_html(
            '<svg class="icon" role="img" aria-label="{}"><use href="{}"></use></svg>', label, href
        )
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}"></use></svg>', href)


@register.simple_tag
def chip(value: Chip | None) -> SafeString | str:
    """A state as icon, word and tone; nothing for None. The reason is the page's to place."""
    if value is None:
        return ""
    return format_html(
        '<span class="chip chip-{}">{}{}</span>', value.tone, icon(ICONS[value.tone]), value.label
    )


@register.filter
def message_tone(level_tag: str) -> str:
    """The tone of one of Django's messages."""
    return MESSAGE_TONES.get(level_tag, Tone.IDLE)


@register.filter
def message_icon(level_tag: str) -> str:
    """The icon of one of Django's messages."""
    return {"success": "check-circle", "info": "info"}.get(level_tag, ICONS[Tone.WARN])


# ---------------------------------------------------------------- times and amounts


def relative_text(moment: datetime, now: datetime) -> str:
    """`moment` as seen from `now`: "just now", "3 min ago", "in 2 h"; a date beyond 30 days."""
    seconds = (now - moment).total_seconds()
    size = abs(seconds)
    if size < 5:
        return "just now"
    if size >= 30 * DAY_S:
        return f"{moment.day} {moment:%b %Y}"
    unit_s, unit = next((s, word) for s, word in UNITS if size >= s)
    count = int(size // unit_s)
    plural = "s" if unit == "day" and count != 1 else ""
    return f"{count} {unit}{plural} ago" if seconds > 0 else f"in {count} {unit}{plural}"


@register.simple_tag
def when(moment: datetime | None, style: str = "relative") -> SafeString | str:
    """A `<time>`: relative text, or with style "full" the time to the second and its zone."""
    if moment is None:
        return ""
    utc = moment.astimezone(UTC)
    full = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    text = full if style == "full" else relative_text(moment, timezone.now())
    return format_html(
        '<time datetime="{}" title="{}" data-when="{}">{}</time>',
        utc.isoformat(timespec="milliseconds"),
        full,
        style,
        text,
    )


@register.filter
def filesize(size_bytes: float | None) -> str:
    """Bytes in binary units with three digits: "634 MiB", "1.25 GiB"."""
    if size_bytes is None:
        return ""
    if size_bytes < 1000:
        return f"{size_bytes:.0f} B"
    power, unit = next((p, u) for p, u in BINARY_UNITS if size_bytes < 1000 * 1024**p)
    amount = size_bytes / 1024**power
    return f"{amount:.3g} {unit}" if amount < 100 else f"{amount:.0f} {unit}"


@register.filter
def duration(seconds: float | None) -> str:
    """Seconds as "840 ms", "12.3 s", "4 min 5 s", "2 h 10 min", "3 days"."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < MINUTE_S:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < HOUR_S:
        return f"{whole // MINUTE_S} min {whole % MINUTE_S} s"
    if whole < 2 * DAY_S:
        return f"{whole // HOUR_S} h {whole % HOUR_S // MINUTE_S} min"
    return f"{whole // DAY_S} days"


@register.filter
def pretty_json(value: Any) -> str:
    """Indented JSON with rows of plain values on one line, cut with a note when it is very long."""
    text = "".join(_pretty(value, "\n"))
    if len(text) <= MAX_PRETTY_CHARACTERS:
        return text
    return (
        f"{text[:MAX_PRETTY_CHARACTERS]}\n... {len(text) - MAX_PRETTY_CHARACTERS} more characters"
    )


def _pretty(value: Any, newline: str) -> Iterator[str]:
    """JSON in pieces; `newline` is a line break with the indentation so far."""
    plain = json.dumps(value, ensure_ascii=False, default=str)
    is_flat = len(plain) <= PRETTY_WIDTH or not isinstance(value, dict | list) or not value
    if is_flat and not _holds_rows(value):
        yield plain
        return
    deeper = f"{newline}  "
    if isinstance(value, list) and not _holds_rows(value):
        yield from _filled(value, newline)
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield opening
    for number, item in enumerate(value):
        yield f"{',' if number else ''}{deeper}"
        if isinstance(value, dict):
            yield f"{json.dumps(item, ensure_ascii=False)}: "
            yield from _pretty(value[item], deeper)
        else:
            yield from _pretty(item, deeper)
    yield f"{newline}{closing}"


def _filled(row: list[Any], newline: str) -> Iterator[str]:
    """A long row of plain values, as many on each line as fit."""
    deeper = f"{newline}  "
    yield "["
    room = 0
    for number, item in enumerate(row):
        text = json.dumps(item, ensure_ascii=False, default=str)
        ending = "," if number < len(row) - 1 else ""
        if len(text) + 2 > room:
            yield deeper
            room = PRETTY_WIDTH
        else:
            yield " "
        yield f"{text}{ending}"
        room -= len(text) + 2
    yield f"{newline}]"


def _holds_rows(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(item, dict | list) for item in items)


# ---------------------------------------------------------------- copying


@register.simple_tag
def copy_button(text: str, label: str = "Copy") -> SafeString:
    """A button that copies `text`; its script shows it where copying works."""
    return format_html(
        '<button type="button" class="copy" data-copy="{}"{} hidden>{}<span>{}</span></button>',
        text,
        "" if label else SafeString(' aria-label="Copy"'),
        icon("copy"),
        label,
    )


@register.simple_tag
def code_block(text: str, label: str = "") -> SafeString:
    """A block of code with its name and a copy button."""
    return format_html(
        '<figure class="code"><figcaption>{}{}</figcaption>'
        '<pre tabindex="0" aria-label="{}"><code>{}</code></pre></figure>',
        label,
        copy_button(text),
        label or "Code",
        text,
    )


# ---------------------------------------------------------------- forms


@register.inclusion_tag("ui/_field.html")
def field(bound: BoundField) -> dict[str, object]:
    """A form field with its label above, help below, and error below that."""
    kind = getattr(bound.field.widget, "input_type", "")
    return {"field": bound, "is_checkbox": kind == "checkbox"}


@register.simple_tag
def error_summary(form: BaseForm) -> SafeString | str:
    """All errors of a bound form as links to their fields; takes the focus."""
    if not form.errors:
        return ""
    items: list[tuple[str, str]] = []
    for name, errors in form.errors.items():
        if name in form.fields:
            bound = form[name]
            items += [(bound.id_for_label, f"{bound.label}: {error}") for error in errors]
        else:
            items += [("", str(error)) for error in errors]
    rows = format_html_join(
        "",
        "<li>{}</li>",
        ((format_html('<a href="#{}">{}</a>', to, text) if to else text,) for to, text in items),
    )
    return format_html(
        '<div class="notice notice-bad" role="alert" tabindex="-1" data-focus>{}'
        "<div><strong>{}</strong><ul>{}</ul></div></div>",
        icon(ICONS[Tone.BAD]),
        "This needs a change" if len(items) == 1 else f"{len(items)} things need a change",
        rows,
    )
