"""Multipart uploads: begin, complete and abort a session (its parts: see `parts`)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone

from portal.accounts.models import User
from portal.registry.models import UploadSession
from portal.registry.services import parts
from portal.registry.services.files import appear, require_uploadable
from portal.registry.services.paths import FilePath, parse_path
from portal.rest import InvalidParameterValue, NotFound, TemporarilyUnavailable


def begin_upload(user: User, path: FilePath, *, overwrite: bool) -> UploadSession:
    """Open a session; its token goes into every further call.

    Raises:
        AlreadyExists: The file is there and is not to be overwritten.
        InvalidState: The model version is finalized.
    """
    require_uploadable(user, path, overwrite=overwrite)
    token = secrets.token_urlsafe(32)
    parts.make_folder(token)
    return UploadSession.objects.create(token=token, user=user, path=str(path), overwrite=overwrite)


def find_session(user: User, token: str, path: str | None = None) -> UploadSession:
    """The user's session, which may be completed.

    Raises:
        NotFound: There is none, or it is for another path.
    """
    session = UploadSession.objects.filter(token=token, user=user).first()
    if session is None or (path is not None and str(parse_path(path)) != session.path):
        raise NotFound("The upload session does not exist or has ended.")
    return session


def complete_upload(
    user: User, session: UploadSession, received: Sequence[tuple[int, str]]
) -> None:
    """Let the file appear from its parts; done again, it changes nothing.

    Args:
        user: Whose session it is.
        session: The session.
        received: Number and ETag of each part, ascending.

    Raises:
        InvalidParameterValue: A part is missing or was received with another ETag.
        AlreadyExists: A file of that name appeared meanwhile and is not to be overwritten.
    """
    if session.completed_at is not None:
        return
    if not 1 <= len(received) <= parts.MAX_PARTS:
        raise InvalidParameterValue(f"Give 1 to {parts.MAX_PARTS} parts.")
    try:
        finished = parts.seal(session.token, received)
    except (NotFound, TemporarilyUnavailable):
        if _is_completed(session):
            return
        raise
    with transaction.atomic():
        again = UploadSession.objects.select_for_update().filter(pk=session.pk).first()
        if again is None:
            raise NotFound("The upload session does not exist or has ended.")
        if again.completed_at is None:
            appear(user, parse_path(session.path), finished, overwrite=session.overwrite)
            again.completed_at = timezone.now()
            again.save(update_fields=["completed_at"])
    parts.remove_folder(session.token)


def _is_completed(session: UploadSession) -> bool:
    session.refresh_from_db()
    return session.completed_at is not None


def abort_upload(session: UploadSession) -> None:
    """End a session and remove its parts; a completed one stays as it is."""
    if session.completed_at is None:
        session.delete()
    parts.remove_folder(session.token)
