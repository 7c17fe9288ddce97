"""Previews over REST."""

from __future__ import annotations

from typing import Any, cast

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.accounts.models import User
from portal.previews import services
from portal.previews.services import PreviewView
from portal.rest import StrictBooleanField, validated


class PreviewInput(serializers.Serializer[dict[str, Any]]):
    enabled = StrictBooleanField()


def preview_body(preview: PreviewView) -> dict[str, Any]:
    """A preview as clients see it."""
    return {
        "name": preview.info.name,
        "title": preview.info.title,
        "description": preview.info.description,
        "stage": preview.info.stage,
        "enabled": preview.enabled,
        "changed_by": preview.changed_by.username if preview.changed_by else None,
        "changed_at": int(preview.changed_at.timestamp() * 1000) if preview.changed_at else None,
    }


class Previews(APIView):
    def get(self, request: Request) -> Response:
        return Response({"previews": [preview_body(p) for p in services.all_previews()]})


class OnePreview(APIView):
    def get(self, request: Request, name: str) -> Response:
        return Response(preview_body(services.get_preview(name)))

    def patch(self, request: Request, name: str) -> Response:
        user = cast(User, request.user)
        services.get_preview(name)
        wanted = validated(PreviewInput, request.data)
        return Response(preview_body(services.set_enabled(name, wanted["enabled"], user)))
