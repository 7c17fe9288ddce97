"""`/api/2.0/mlflow/unity-catalog/registered-models/...`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from portal.registry import services
from portal.registry.api import serializers as ask
from portal.registry.api.answers import (
    model_answer,
    version_answer,
)
from portal.registry.api.views import RegistryView, body, query, user_of
from portal.registry.models import RegisteredModel
from portal.registry.services.paging import page_token, read_page_token

MODELS_A_PAGE = 100
MOST_MODELS_A_PAGE = 1000


class CreateView(RegistryView):
    def post(self, request: Request) -> Response:
        asked = body(request, ask.CreateModel)
        model = services.create_model(
            user_of(request),
            asked["name"],
            description=asked["description"] or "",
            tags=tags_of(asked["tags"]),
        )
        return Response({"registered_model": model_answer(model)})


class GetView(RegistryView):
    def get(self, request: Request) -> Response:
        model = services.find_model(user_of(request), query(request, ask.Name)["name"])
        return Response({"registered_model": model_answer(model)})


class UpdateView(RegistryView):
    def patch(self, request: Request) -> Response:
        asked = body(request, ask.UpdateModel)
        model = services.update_model(
            user_of(request),
            asked["name"],
            description=asked.get("description"),
            new_name=asked.get("new_name"),
        )
        return Response({"registered_model": model_answer(model)})


class DeleteView(RegistryView):
    def delete(self, request: Request) -> Response:
        services.delete_model(user_of(request), body(request, ask.Name)["name"])
        return Response({})


class SearchView(RegistryView):
    def get(self, request: Request) -> Response:
        asked = query(request, ask.Page)
        size = min(asked.get("max_results") or MODELS_A_PAGE, MOST_MODELS_A_PAGE)
        found = list(
            RegisteredModel.objects.readable_by(user_of(request))
            .filter(name__gt=read_page_token(asked["page_token"]))
            .select_related("owner")
            .prefetch_related("tags", "aliases__model_version")
            .order_by("name")[: size + 1]
        )
        answer: dict[str, Any] = {"registered_models": [model_answer(m) for m in found[:size]]}
        if len(found) > size:
            answer["next_page_token"] = page_token(found[size - 1].name)
        return Response(answer)


class SetTagView(RegistryView):
    def post(self, request: Request) -> Response:
        asked = body(request, ask.SetModelTag)
        services.set_model_tag(user_of(request), asked["name"], asked["key"], asked["value"] or "")
        return Response({})


class DeleteTagView(RegistryView):
    def delete(self, request: Request) -> Response:
        asked = body(request, ask.ModelTag)
        services.delete_model_tag(user_of(request), asked["name"], asked["key"])
        return Response({})


class AliasView(RegistryView):
    def get(self, request: Request) -> Response:
        asked = query(request, ask.Alias)
        version = services.find_version_by_alias(user_of(request), asked["name"], asked["alias"])
        return Response({"model_version": version_answer(version)})

    def post(self, request: Request) -> Response:
        asked = body(request, ask.SetAlias)
        services.set_alias(user_of(request), asked["name"], asked["alias"], asked["version"])
        return Response({})

    def delete(self, request: Request) -> Response:
        asked = body(request, ask.Alias)
        services.delete_alias(user_of(request), asked["name"], asked["alias"])
        return Response({})


class UsesFilesApiView(RegistryView):
    """Tells the client to upload with databricks-sdk's Files API, large files in parts."""

    def get(self, request: Request) -> Response:
        return Response({"is_databricks_sdk_models_artifact_repository_enabled": True})


def tags_of(asked: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Tags as services take them; the last of two with one key counts."""
    return {tag["key"]: tag["value"] or "" for tag in asked}
