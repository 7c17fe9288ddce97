"""The only reader of the environment: typed, and clear about what is wrong.

Each reader names the variable, the value and what was expected, and stops the start. Secrets may
also come from a file that `<NAME>_FILE` names.
"""

from __future__ import annotations

import os
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off"}


def text(name: str, default: str) -> str:
    """The variable's text, or `default` where it is unset or empty."""
    return os.environ.get(name) or default


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of `allowed`."""
    value = text(name, default)
    if value not in allowed:
        raise ImproperlyConfigured(f"{name} is {value!r}; expected one of {', '.join(allowed)}.")
    return value


def integer(name: str, default: int, *, least: int = 0, most: int | None = None) -> int:
    """A whole number within bounds."""
    value = text(name, str(default))
    bounds = f"a whole number of at least {least}" + ("" if most is None else f", at most {most}")
    try:
        number = int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {value!r}; expected {bounds}.") from None
    if number < least or (most is not None and number > most):
        raise ImproperlyConfigured(f"{name} is {value}; expected {bounds}.")
    return number


def boolean(name: str, *, default: bool) -> bool:
    """True or false, in the usual words."""
    value = text(name, "true" if default else "false").lower()
    if value not in TRUE | FALSE:
        raise ImproperlyConfigured(f"{name} is {value!r}; expected true or false.")
    return value in TRUE


def words(name: str, default: str) -> list[str]:
    """Comma-separated words."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def path(name: str, default: Path) -> Path:
    """An absolute path."""
    return Path(text(name, str(default))).expanduser().absolute()


def url(name: str) -> str:
    """The base of a web address, without a slash at its end; "" where it is unset."""
    value = text(name, "").rstrip("/")
    if not value:
        return ""
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ImproperlyConfigured(f"{name} is {value!r}; expected https://host or http://host.")
    return value


def networks(name: str, default: str) -> list[IPv4Network | IPv6Network]:
    """Comma-separated addresses and networks."""
    found = []
    for word in words(name, default):
        try:
            found.append(ip_network(word))
        except ValueError:
            raise ImproperlyConfigured(
                f"{name} holds {word!r}; expected addresses or networks such as 10.0.0.0/8."
            ) from None
    return found


def secret(name: str) -> str | None:
    """The variable, or the content of the file that `<name>_FILE` names; None without either."""
    value = os.environ.get(name)
    if value:
        return value
    file = os.environ.get(f"{name}_FILE")
    if not file:
        return None
    try:
        return Path(file).read_text().strip()
    except OSError as exc:
        raise ImproperlyConfigured(f"{name}_FILE cannot be read: {exc.strerror}.") from exc
