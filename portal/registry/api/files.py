"""`/api/2.0/fs/...`, all but the bytes of files themselves (see `portal.registry.transfer`)."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from portal.registry.api import serializers as ask
from portal.registry.api.views import RegistryView, body, query, user_of
from portal.registry.services import files, uploads
from portal.registry.services.links import Link, LinkKind, expiry, sign
from portal.registry.services.paths import parse_path
from portal.rest import EndpointNotFound, InvalidParameterValue
from portal.workspace import public_url

HEADERS = [{"name": "Content-Type", "value": "application/octet-stream"}]


def _nothing() -> HttpResponse:
    return HttpResponse(status=204)


class DirectoryView(RegistryView):
    def head(self, request: Request, path: str) -> HttpResponse:
        files.require_directory(user_of(request), parse_path(path))
        return HttpResponse(status=200, content_type="application/json")

    def get(self, request: Request, path: str) -> Response:
        asked = query(request, ask.Listing)
        entries, following = files.list_directory(
            user_of(request),
            parse_path(path),
            page_size=asked.get("page_size"),
            token=asked["page_token"],
        )
        answer: dict[str, Any] = {
            "contents": [
                {
                    "path": entry.path,
                    "name": entry.name,
                    "is_directory": entry.is_directory,
                    "file_size": entry.size_bytes,
                    "last_modified": entry.modified_ms,
                }
                for entry in entries
            ]
        }
        if following:
            answer["next_page_token"] = following
        return Response(answer)

    def put(self, request: Request, path: str) -> HttpResponse:
        files.create_directory(user_of(request), parse_path(path))
        return _nothing()

    def delete(self, request: Request, path: str) -> HttpResponse:
        files.delete_directory(user_of(request), parse_path(path))
        return _nothing()


class FileView(RegistryView):
    """Deleting, and the actions of a multipart upload."""

    def delete(self, request: Request, path: str) -> HttpResponse:
        files.delete_file(user_of(request), parse_path(path))
        return _nothing()

    def post(self, request: Request, path: str) -> Response:
        action = request.query_params.get("action", "")
        if action == "initiate-upload":
            session = uploads.begin_upload(
                user_of(request),
                parse_path(path),
                overwrite=is_true(request.query_params.get("overwrite", "")),
            )
            return Response({"multipart_upload": {"session_token": session.token}})
        token = request.query_params.get("session_token", "").replace("\x00", "")
        if action == "complete-upload":
            parts = body(request, ask.CompleteUpload)["parts"]
            session = uploads.find_session(user_of(request), token, path)
            uploads.complete_upload(
                user_of(request), session, [(p["part_number"], p["etag"]) for p in parts]
            )
            return Response({})
        if action == "abort-upload":
            uploads.abort_upload(uploads.find_session(user_of(request), token, path))
            return Response({})
        if action:
            raise InvalidParameterValue(
                "action must be initiate-upload, complete-upload or abort-upload."
            )
        raise EndpointNotFound("There is no such API path with this method.")


class PartUrlsView(RegistryView):
    def post(self, request: Request) -> Response:
        asked = body(request, ask.PartUrls)
        session = uploads.find_session(user_of(request), asked["session_token"], asked["path"])
        ends = expiry(asked["expire_time"])
        first = asked["start_part_number"]
        return Response(
            {
                "upload_part_urls": [
                    {
                        "url": public_url(request)
                        + sign(
                            Link(
                                kind=LinkKind.PART,
                                session=session.token,
                                number=number,
                                expires_at=ends,
                            )
                        ),
                        "part_number": number,
                        "headers": HEADERS,
                    }
                    for number in range(first, first + asked["count"])
                ]
            }
        )


class UploadUrlView(RegistryView):
    def post(self, request: Request) -> Response:
        asked = body(request, ask.FileLocation)
        path = parse_path(asked["path"])
        user = user_of(request)
        files.require_uploadable(user, path, overwrite=True)
        link = Link(
            kind=LinkKind.UPLOAD,
            path=str(path),
            user_pk=user.pk,
            expires_at=expiry(asked["expire_time"]),
        )
        return Response({"url": public_url(request) + sign(link), "headers": []})


class DownloadUrlView(RegistryView):
    """The SDK asks with query parameters and no body, mlflow with a JSON body."""

    def post(self, request: Request) -> Response:
        in_query = "path" in request.query_params
        asked = (query if in_query else body)(request, ask.FileLocation)
        path = parse_path(asked["path"])
        user = user_of(request)
        files.require_file(user, path)
        link = Link(
            kind=LinkKind.DOWNLOAD,
            path=str(path),
            user_pk=user.pk,
            expires_at=expiry(asked["expire_time"]),
        )
        return Response({"url": public_url(request) + sign(link), "headers": []})


def is_true(text: str) -> bool:
    """A boolean query parameter."""
    return text.lower() in {"true", "1"}
