"""Page tokens: where the next page begins, as clients hand it back."""

from __future__ import annotations

import base64
import binascii

from portal.rest import InvalidParameterValue


def page_token(position: str) -> str:
    """A position as a token."""
    return base64.urlsafe_b64encode(position.encode()).decode()


def read_page_token(token: str) -> str:
    """The position that a token was made of; "" for the first page.

    Raises:
        InvalidParameterValue: It was not made here.
    """
    try:
        position = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        position = "\x00"
    if "\x00" in position:
        raise InvalidParameterValue("page_token is not one that this call gave.")
    return position
