"""What the files API takes and answers, the streaming part of it too."""

from __future__ import annotations

from functools import partial
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from portal.registry.api import files
from portal.registry.api import serializers as ask
from portal.registry.transfer.downloading import PreconditionFailed
from portal.schema.calls import (
    BYTES,
    Answer,
    Call,
    describe,
    describe_path,
    header,
    path_parameter,
)

PATH = path_parameter(
    "path",
    "Models/<catalog>/<schema>/<model>/<version>/… or Volumes/<catalog>/<schema>/<volume>/…; "
    "each segment percent-encoded once.",
)
LINK = path_parameter("link", "As a call gave it; it carries its own authority and its end.")
RANGE = header("Range", "bytes=first-last, one range.")
UNCHANGED = header("If-Unmodified-Since", "412 when the file is newer.")
RAW = {"type": "string", "format": "binary"}
FILE_HEADERS = {
    "Last-Modified": "When the file was written.",
    "Accept-Ranges": "bytes",
    "ETag": "Another one for each content.",
}
call = partial(Call, group="Files")

OVERWRITE = OpenApiParameter(
    "overwrite", {"type": "string", "enum": ["true", "false"]}, description="Default false."
)


class DirectoryEntry(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="With a slash at its start, decoded.")
    name = serializers.CharField()
    is_directory = serializers.BooleanField()
    file_size = serializers.IntegerField(allow_null=True, help_text="In bytes.")
    last_modified = serializers.IntegerField(allow_null=True)


class DirectoryPage(serializers.Serializer[Any]):
    contents = DirectoryEntry(many=True)
    next_page_token = serializers.CharField(required=False, help_text="Absent on the last page.")


class LinkHeader(serializers.Serializer[Any]):
    name = serializers.CharField()
    value = serializers.CharField()


class SignedLink(serializers.Serializer[Any]):
    url = serializers.CharField()
    headers = LinkHeader(many=True, help_text="To send with the call.")


class PartUrl(SignedLink):
    part_number = serializers.IntegerField()


class PartUrlList(serializers.Serializer[Any]):
    upload_part_urls = PartUrl(many=True)


NO_BODY = {204: Answer(text="It is done.")}

describe(
    files.DirectoryView,
    head=call(
        id="head_directory",
        summary="Ask whether a directory exists",
        parameters=(PATH,),
        answers={200: Answer(text="It exists.")},
        errors=(404, 503),
    ),
    get=call(
        id="list_directory",
        summary="List a directory",
        parameters=(PATH,),
        query=ask.Listing,
        answer=DirectoryPage,
        errors=(404, 503),
    ),
    put=call(
        id="create_directory",
        summary="Create a directory with its parents",
        parameters=(PATH,),
        answers=NO_BODY,
        errors=(403, 404, 409, 503),
    ),
    delete=call(
        id="delete_directory",
        summary="Delete an empty directory",
        parameters=(PATH,),
        answers=NO_BODY,
        errors=(403, 404, 503),
    ),
)
describe(
    files.FileView,
    delete=call(
        id="delete_file",
        summary="Delete a file",
        parameters=(PATH,),
        answers=NO_BODY,
        errors=(403, 404, 503),
    ),
    post=call(
        id="multipart_upload",
        summary="Begin, complete or abort an upload in parts",
        text=(
            "`initiate-upload` answers `multipart_upload` with its `session_token`; "
            "`complete-upload` joins the parts and may be sent twice; `abort-upload` forgets them."
        ),
        parameters=(
            PATH,
            OpenApiParameter(
                "action", enum=["initiate-upload", "complete-upload", "abort-upload"], required=True
            ),
            OVERWRITE,
            OpenApiParameter("upload_type", enum=["multipart"], description="May be left out."),
            OpenApiParameter("session_token", description="Of the upload, but to initiate."),
        ),
        body=ask.CompleteUpload,
        is_body_required=False,
        example={"parts": [{"part_number": 1, "etag": "9a0364b9e99bb480dd25e1f0284c8555"}]},
        answer={
            "type": "object",
            "properties": {
                "multipart_upload": {
                    "type": "object",
                    "properties": {"session_token": {"type": "string"}},
                    "required": ["session_token"],
                }
            },
        },
        errors=(403, 404, 409, 503),
    ),
)
describe_path(
    "/api/2.0/fs/files/{path}",
    put=call(
        id="upload_file",
        summary="Upload a file",
        text="The body is streamed to the disk; the file appears when it is complete.",
        parameters=(PATH, OVERWRITE),
        body=RAW,
        media_type=BYTES,
        answers=NO_BODY,
        errors=(403, 404, 409, 503),
    ),
    get=call(
        id="download_file",
        summary="Download a file, or a range of its bytes",
        parameters=(PATH, RANGE, UNCHANGED),
        answers={
            200: Answer(text="The file.", shape=RAW, media_type=BYTES, headers=FILE_HEADERS),
            206: Answer(text="The range.", shape=RAW, media_type=BYTES, headers=FILE_HEADERS),
        },
        errors=(404, PreconditionFailed.status, 503),
    ),
    head=call(
        id="head_file",
        summary="Get a file's size and time",
        parameters=(PATH, UNCHANGED),
        answers={200: Answer(text="It exists.", headers=FILE_HEADERS)},
        errors=(404, PreconditionFailed.status, 503),
    ),
)
describe(
    files.PartUrlsView,
    post=call(
        id="create_upload_part_urls",
        summary="Get links to upload parts to",
        body=ask.PartUrls,
        example={
            "path": "/Volumes/main/default/data/big.bin",
            "session_token": "…",
            "start_part_number": 1,
            "count": 2,
            "expire_time": "2030-01-01T00:00:00Z",
        },
        answer=PartUrlList,
        errors=(403, 404, 503),
    ),
)
describe(
    files.UploadUrlView,
    post=call(
        id="create_upload_url",
        summary="Get a link to upload one file to",
        body=ask.FileLocation,
        example={"path": "/Volumes/main/default/data/small.bin"},
        answer=SignedLink,
        errors=(403, 404, 503),
    ),
)
describe(
    files.DownloadUrlView,
    post=call(
        id="create_download_url",
        summary="Get a link to download a file from",
        text="Give `path` in the query or in the body.",
        parameters=(
            OpenApiParameter("path", description="With a slash at its start."),
            OpenApiParameter("expire_time", description="ISO 8601; within a day."),
        ),
        body=ask.FileLocation,
        is_body_required=False,
        example={"path": "/Volumes/main/default/data/small.bin"},
        answer=SignedLink,
        errors=(404, 503),
    ),
)
REFUSED = Answer(
    text="The link is not from here, or its time is over: `<Error><Code>AccessDenied</Code>…`.",
    shape={"type": "string"},
    media_type="application/xml",
)
describe_path(
    "/api/2.0/fs/transfer/{link}",
    get=call(
        id="download_by_link",
        summary="Download a file by its link",
        parameters=(LINK, RANGE, UNCHANGED),
        answers={
            200: Answer(text="The file.", shape=RAW, media_type=BYTES, headers=FILE_HEADERS),
            206: Answer(text="The range.", shape=RAW, media_type=BYTES, headers=FILE_HEADERS),
            403: REFUSED,
        },
        errors=(404, PreconditionFailed.status, 503),
        is_open=True,
    ),
    head=call(
        id="head_by_link",
        summary="Get a file's size and time by its link",
        parameters=(LINK, UNCHANGED),
        answers={200: Answer(text="It exists.", headers=FILE_HEADERS), 403: REFUSED},
        errors=(404, PreconditionFailed.status, 503),
        is_open=True,
    ),
    put=call(
        id="upload_by_link",
        summary="Upload a file or a part by its link",
        parameters=(LINK,),
        body=RAW,
        media_type=BYTES,
        answers={
            200: Answer(text="It is received.", headers={"ETag": "Of a part; to complete with."}),
            403: REFUSED,
        },
        errors=(401, 404, 409, 503),
        is_open=True,
    ),
)
