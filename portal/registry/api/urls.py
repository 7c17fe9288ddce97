"""Routes of the registry, of the files and of the start-up probe."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from portal.registry.api import files, model_versions, permissions, probe, registered_models

CATALOG = "api/2.0/mlflow/unity-catalog/"
MODELS = f"{CATALOG}registered-models"
VERSIONS = f"{CATALOG}model-versions"
FILES = "api/2.0/fs/"
ACCESS = "api/2.0/permissions/registered-models/"

urlpatterns: list[URLPattern | URLResolver] = [
    path(".well-known/databricks-config", probe.well_known),
    path(f"{MODELS}/create", registered_models.CreateView.as_view()),
    path(f"{MODELS}/get", registered_models.GetView.as_view()),
    path(f"{MODELS}/update", registered_models.UpdateView.as_view()),
    path(f"{MODELS}/delete", registered_models.DeleteView.as_view()),
    path(f"{MODELS}/search", registered_models.SearchView.as_view()),
    path(f"{MODELS}/set-tag", registered_models.SetTagView.as_view()),
    path(f"{MODELS}/delete-tag", registered_models.DeleteTagView.as_view()),
    path(f"{MODELS}/alias", registered_models.AliasView.as_view()),
    path(
        f"{MODELS}:is-databricks-sdk-models-artifact-repository-enabled",
        registered_models.UsesFilesApiView.as_view(),
    ),
    path(f"{VERSIONS}/create", model_versions.CreateView.as_view()),
    path(f"{VERSIONS}/get", model_versions.GetView.as_view()),
    path(f"{VERSIONS}/update", model_versions.UpdateView.as_view()),
    path(f"{VERSIONS}/delete", model_versions.DeleteView.as_view()),
    path(f"{VERSIONS}/search", model_versions.SearchView.as_view()),
    path(f"{VERSIONS}/finalize", model_versions.FinalizeView.as_view()),
    path(f"{VERSIONS}/generate-temporary-credentials", model_versions.CredentialsView.as_view()),
    path(f"{VERSIONS}/get-download-uri", model_versions.DownloadUriView.as_view()),
    path(f"{VERSIONS}/set-tag", model_versions.SetTagView.as_view()),
    path(f"{VERSIONS}/delete-tag", model_versions.DeleteTagView.as_view()),
    path(f"{VERSIONS}/emit-lineage", model_versions.EmitLineageView.as_view()),
    path("api/2.0/serving-endpoints:stageDeployment", model_versions.StageView.as_view()),
    path(f"{ACCESS}<str:name>", permissions.ModelPermissionsView.as_view()),
    path(f"{ACCESS}<str:name>/permissionLevels", permissions.ModelPermissionLevelsView.as_view()),
    path(f"{FILES}create-upload-part-urls", files.PartUrlsView.as_view()),
    path(f"{FILES}create-upload-url", files.UploadUrlView.as_view()),
    path(f"{FILES}create-download-url", files.DownloadUrlView.as_view()),
    path(f"{FILES}directories/<path:path>", files.DirectoryView.as_view()),
    path(f"{FILES}files/<path:path>", files.FileView.as_view()),
]
