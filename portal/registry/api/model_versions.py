"""`/api/2.0/mlflow/unity-catalog/model-versions/...` and the call that starts staging."""

from __future__ import annotations

import re
import time
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from portal.registry import services
from portal.registry.api import serializers as ask
from portal.registry.api.answers import (
    storage_location,
    version_answer,
)
from portal.registry.api.registered_models import tags_of
from portal.registry.api.views import RegistryView, body, query, user_of
from portal.registry.models import BULKY, ModelVersion
from portal.registry.services.paging import page_token, read_page_token
from portal.rest import InvalidParameterValue

MOST_VERSIONS_A_PAGE = 10_000
CREDENTIALS_LIFETIME_S = 3600
CLAUSE = re.compile(r"""\s*(name|run_id)\s*=\s*(?:'([^']*)'|"([^"]*)")\s*""")


class CreateView(RegistryView):
    def post(self, request: Request) -> Response:
        asked = body(request, ask.CreateVersion)
        version = services.create_version(
            user_of(request),
            asked["name"],
            source=asked["source"] or "",
            run_id=asked["run_id"] or "",
            description=asked["description"] or "",
            logged_model_id=asked["model_id"] or "",
            tags=tags_of(asked["tags"]),
        )
        return _answer(version)


class GetView(RegistryView):
    def get(self, request: Request) -> Response:
        asked = query(request, ask.Version)
        return _answer(services.find_version(user_of(request), asked["name"], asked["version"]))


class UpdateView(RegistryView):
    def patch(self, request: Request) -> Response:
        asked = body(request, ask.UpdateVersion)
        version = services.update_version(
            user_of(request),
            asked["name"],
            asked["version"],
            description=asked["description"] or "",
        )
        return _answer(version)


class DeleteView(RegistryView):
    def delete(self, request: Request) -> Response:
        asked = body(request, ask.Version)
        services.delete_version(user_of(request), asked["name"], asked["version"])
        return Response({})


class SearchView(RegistryView):
    """Newest first; `filter` is `name='...'`, `run_id='...'` or both with AND."""

    def get(self, request: Request) -> Response:
        asked = query(request, ask.SearchVersions)
        size = min(asked.get("max_results") or MOST_VERSIONS_A_PAGE, MOST_VERSIONS_A_PAGE)
        position = read_page_token(asked["page_token"])
        versions = ModelVersion.objects.readable_by(user_of(request)).filter(
            **_conditions(asked["filter"])
        )
        if position:
            versions = versions.filter(pk__lt=_position(position))
        found = list(
            versions.select_related("model", "creator")
            .prefetch_related("tags", "aliases")
            .defer(*BULKY, "signature", "requirements")
            .order_by("-pk")[: size + 1]
        )
        answer: dict[str, Any] = {"model_versions": [version_answer(v) for v in found[:size]]}
        if len(found) > size:
            answer["next_page_token"] = page_token(str(found[size - 1].pk))
        return Response(answer)


def _position(text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise InvalidParameterValue("page_token is not one that a search gave.")
    return int(text)


def _conditions(text: str) -> dict[str, str]:
    """The query's conditions; both fields may be given once.

    Raises:
        InvalidParameterValue: It is another kind of filter.
    """
    conditions: dict[str, str] = {}
    if not text.strip():
        return conditions
    for clause in re.split(r"\band\b(?=(?:[^'\"]|'[^']*'|\"[^\"]*\")*$)", text, flags=re.I):
        found = CLAUSE.fullmatch(clause)
        field = {"name": "model__name", "run_id": "run_id"}.get(found[1]) if found else None
        if found is None or field is None or field in conditions:
            raise InvalidParameterValue(
                "filter must be name='<catalog>.<schema>.<model>' or run_id='<run>', or both "
                "joined by AND."
            )
        conditions[field] = found[2] if found[2] is not None else found[3]
    return conditions


class FinalizeView(RegistryView):
    def post(self, request: Request) -> Response:
        asked = body(request, ask.Version)
        return _answer(services.finalize_version(user_of(request), asked["name"], asked["version"]))


class CredentialsView(RegistryView):
    """No cloud storage is behind us: clients come back to the Files API with their token."""

    def post(self, request: Request) -> Response:
        asked = body(request, ask.Credentials)
        if asked["operation"].endswith("READ_WRITE"):
            services.writable_version(user_of(request), asked["name"], asked["version"])
        else:
            services.find_version(user_of(request), asked["name"], asked["version"])
        ends = int((time.time() + CREDENTIALS_LIFETIME_S) * 1000)
        return Response(
            {"credentials": {"storage_mode": "DEFAULT_STORAGE", "expiration_time": ends}}
        )


class DownloadUriView(RegistryView):
    def get(self, request: Request) -> Response:
        asked = query(request, ask.Version)
        version = services.find_version(user_of(request), asked["name"], asked["version"])
        return Response({"artifact_uri": storage_location(version)})


class SetTagView(RegistryView):
    def post(self, request: Request) -> Response:
        asked = body(request, ask.SetVersionTag)
        services.set_version_tag(
            user_of(request), asked["name"], asked["version"], asked["key"], asked["value"] or ""
        )
        return Response({})


class DeleteTagView(RegistryView):
    def delete(self, request: Request) -> Response:
        asked = body(request, ask.VersionTag)
        services.delete_version_tag(user_of(request), asked["name"], asked["version"], asked["key"])
        return Response({})


class EmitLineageView(RegistryView):
    """Lineage is not kept; the clients send it at each load."""

    def post(self, request: Request) -> Response:
        asked = body(request, ask.Version)
        services.find_version(user_of(request), asked["name"], asked["version"])
        return Response({})


class StageView(RegistryView):
    """`POST /api/2.0/serving-endpoints:stageDeployment`: starts the unpacking and answers."""

    def post(self, request: Request) -> Response:
        asked = body(request, ask.Stage)
        version = services.writable_version(
            user_of(request), asked["model_name"], asked["model_version"]
        )
        services.request_staging(version, user_of(request))
        return Response({})


def _answer(version: ModelVersion) -> Response:
    return Response({"model_version": version_answer(version)})
