"""The bytes of files: uploads and downloads that stream, beside Django and not through it.

Answers PUT, GET and HEAD below `/api/2.0/fs/files/` (with a token) and everything below
`/api/2.0/fs/transfer/` (signed links, which carry their own authority); other calls go on to
Django. Bodies go to the disk block by block, in threads: no file is ever held in memory, and the
event loop never waits for the disk or the database.
"""

from __future__ import annotations

from portal.registry.transfer.application import transfer_application

__all__ = ["transfer_application"]
