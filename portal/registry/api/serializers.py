"""What the registry and the files API are asked with."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

MAX_TEXT = 65_535
MAX_TAGS = 100


class Text(serializers.CharField):
    """Text as it was sent: not stripped, may be empty; null counts as absent."""

    def __init__(self, max_length: int = MAX_TEXT, **options: Any) -> None:
        options.setdefault("allow_blank", True)
        super().__init__(max_length=max_length, trim_whitespace=False, **options)


class Name(serializers.Serializer[Any]):
    name = Text(1024)


class Tag(serializers.Serializer[Any]):
    key = Text(255, allow_blank=False)
    value = Text(default="", allow_null=True)


class CreateModel(Name):
    description = Text(default="", allow_null=True)
    tags = serializers.ListField(child=Tag(), default=list, max_length=MAX_TAGS)


class UpdateModel(Name):
    description = Text(required=False, allow_null=True)
    new_name = Text(1024, required=False, allow_null=True)


class ModelTag(Name):
    key = Text(255, allow_blank=False)


class SetModelTag(ModelTag):
    value = Text(default="", allow_null=True)


class Alias(Name):
    alias = Text(1024)


class SetAlias(Alias):
    version = Text(32)


class Page(serializers.Serializer[Any]):
    max_results = serializers.IntegerField(required=False, min_value=0, max_value=2**31)
    page_token = Text(2048, default="")


class SearchVersions(Page):
    filter = Text(4096, default="")


class CreateVersion(Name):
    source = Text(default="", allow_null=True)  # type: ignore[assignment]  # a field, by DRF's rules
    run_id = Text(255, default="", allow_null=True)
    description = Text(default="", allow_null=True)
    model_id = Text(255, default="", allow_null=True)
    tags = serializers.ListField(child=Tag(), default=list, max_length=MAX_TAGS)


class Version(Name):
    version = Text(32)


class UpdateVersion(Version):
    description = Text(default="", allow_null=True)


class VersionTag(Version):
    key = Text(255, allow_blank=False)


class SetVersionTag(VersionTag):
    value = Text(default="", allow_null=True)


class Credentials(Version):
    operation = Text(64, default="MODEL_VERSION_OPERATION_READ")


class Stage(serializers.Serializer[Any]):
    model_name = Text(1024)
    model_version = Text(32)


class ModelGrant(serializers.Serializer[Any]):
    user_name = Text(150, default="", allow_null=True)
    group_name = Text(150, default="", allow_null=True)
    service_principal_name = Text(150, default="", allow_null=True)
    permission_level = serializers.ChoiceField(["CAN_READ", "CAN_MANAGE"])


class ModelGrants(serializers.Serializer[Any]):
    access_control_list = serializers.ListField(child=ModelGrant(), default=list, max_length=1000)


# ---------------------------------------------------------------- files


class FileLocation(serializers.Serializer[Any]):
    path = Text(12_288)
    expire_time = Text(64, default="")


class PartUrls(FileLocation):
    session_token = Text(128, allow_blank=False)
    start_part_number = serializers.IntegerField(min_value=1, max_value=10_000)
    count = serializers.IntegerField(min_value=1, max_value=1000, default=1)


class FinishedPart(serializers.Serializer[Any]):
    part_number = serializers.IntegerField(min_value=1, max_value=10_000)
    etag = Text(128, default="")


class CompleteUpload(serializers.Serializer[Any]):
    parts = serializers.ListField(child=FinishedPart(), max_length=10_000)


class Listing(serializers.Serializer[Any]):
    page_size = serializers.IntegerField(required=False, min_value=0, max_value=2**31)
    page_token = Text(2048, default="")
