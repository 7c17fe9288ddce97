"""What the calls on previews take and answer."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.previews.api import views
from portal.previews.states import PREVIEWS
from portal.schema.calls import Call, describe, path_parameter

GROUP = "Previews"
NAME = path_parameter("name", "The preview's name.", examples=list(PREVIEWS))


class Preview(serializers.Serializer[Any]):
    """A feature that admins turn on or off."""

    name = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    stage = serializers.CharField()
    enabled = serializers.BooleanField()
    changed_by = serializers.CharField(allow_null=True, help_text="null while it is as it came.")
    changed_at = serializers.IntegerField(allow_null=True)


class PreviewList(serializers.Serializer[Any]):
    previews = Preview(many=True)


describe(
    views.Previews,
    get=Call(id="list_previews", group=GROUP, summary="List previews", answer=PreviewList),
)
describe(
    views.OnePreview,
    get=Call(
        id="get_preview",
        group=GROUP,
        summary="Get a preview",
        parameters=(NAME,),
        answer=Preview,
        errors=(404,),
    ),
    patch=Call(
        id="set_preview",
        group=GROUP,
        summary="Turn a preview on or off",
        text="Admins only.",
        parameters=(NAME,),
        body=views.PreviewInput,
        example={"enabled": True},
        answer=Preview,
        errors=(403, 404),
    ),
)
