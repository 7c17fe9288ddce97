"""The workspace as clients see it: its id and the address it is reached at."""

from __future__ import annotations

import hashlib
from functools import cache

from django.conf import settings
from django.http import HttpRequest

ORG_ID_HEADER = "x-databricks-org-id"


@cache
def workspace_id() -> str:
    """Sixteen digits, the same for as long as the secret key is."""
    digest = hashlib.sha256(b"shoal workspace id:" + settings.SECRET_KEY.encode()).digest()
    return str(10**15 + int.from_bytes(digest[:8], "big") % (9 * 10**15))


def public_url(request: HttpRequest) -> str:
    """The base URL that the caller reaches this server by, without a trailing slash.

    `SHOAL_PUBLIC_URL` where it is set, else what the request and a trusted proxy say.
    """
    if settings.PUBLIC_URL:
        return str(settings.PUBLIC_URL)
    return f"{request.scheme}://{request.get_host()}"
