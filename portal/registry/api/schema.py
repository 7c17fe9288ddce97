"""What the calls of the registry take and answer; the files' are in `schema_files`."""

from __future__ import annotations

from functools import partial
from typing import Any

from rest_framework import serializers

from portal.registry.api import model_versions as versions
from portal.registry.api import registered_models as models
from portal.registry.api import schema_files, schema_permissions
from portal.registry.api import serializers as ask
from portal.registry.states import VersionStatus
from portal.schema.calls import NOTHING, Call, describe, describe_path

__all__ = ["schema_files", "schema_permissions"]

NAME = "main.default.detector"
model_call = partial(Call, group="Registered models")
version_call = partial(Call, group="Model versions")


class RegistryTag(serializers.Serializer[Any]):
    key = serializers.CharField()
    value = serializers.CharField()


class AliasOfVersion(serializers.Serializer[Any]):
    alias = serializers.CharField()
    version = serializers.CharField()


class RegisteredModel(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="catalog.schema.model")
    creation_timestamp = serializers.IntegerField()
    last_updated_timestamp = serializers.IntegerField()
    user_id = serializers.CharField(help_text="The owner.")
    description = serializers.CharField()
    aliases = AliasOfVersion(many=True)
    tags = RegistryTag(many=True)


class RegisteredModelAnswer(serializers.Serializer[Any]):
    registered_model = RegisteredModel()


class RegisteredModelPage(serializers.Serializer[Any]):
    registered_models = RegisteredModel(many=True)
    next_page_token = serializers.CharField(required=False, help_text="Absent on the last page.")


class ModelVersion(serializers.Serializer[Any]):
    name = serializers.CharField()
    version = serializers.CharField(help_text="A whole number, as a text.")
    creation_timestamp = serializers.IntegerField()
    last_updated_timestamp = serializers.IntegerField()
    user_id = serializers.CharField(help_text="Who registered it.")
    description = serializers.CharField()
    source = serializers.CharField(  # type: ignore[assignment]  # a field, by DRF's rules
        help_text="Where the client had it."
    )
    run_id = serializers.CharField()
    status = serializers.ChoiceField(VersionStatus.values)
    status_message = serializers.CharField()
    storage_location = serializers.CharField(help_text="Its folder in the files API.")
    aliases = AliasOfVersion(many=True)
    tags = RegistryTag(many=True)
    model_id = serializers.CharField(help_text="MLflow's id of the logged model.")


class ModelVersionAnswer(serializers.Serializer[Any]):
    model_version = ModelVersion()


class ModelVersionPage(serializers.Serializer[Any]):
    model_versions = ModelVersion(many=True)
    next_page_token = serializers.CharField(required=False, help_text="Absent on the last page.")


class FilesApiAnswer(serializers.Serializer[Any]):
    is_databricks_sdk_models_artifact_repository_enabled = serializers.BooleanField()


class TemporaryCredentials(serializers.Serializer[Any]):
    storage_mode = serializers.ChoiceField(["DEFAULT_STORAGE"])
    expiration_time = serializers.IntegerField()


class CredentialsAnswer(serializers.Serializer[Any]):
    credentials = TemporaryCredentials()


class DownloadUri(serializers.Serializer[Any]):
    artifact_uri = serializers.CharField()


class WorkspaceConfig(serializers.Serializer[Any]):
    oidc_endpoint = serializers.CharField(help_text="Empty: there is no OAuth.")
    workspace_id = serializers.CharField()


describe_path(
    "/.well-known/databricks-config",
    get=Call(
        id="get_workspace_config",
        group="Identity and tokens",
        summary="Get the workspace's facts",
        text="Clients ask for it before anything else, without a token.",
        answer=WorkspaceConfig,
        is_open=True,
    ),
)

# ---------------------------------------------------------------- registered models
describe(
    models.CreateView,
    post=model_call(
        id="create_registered_model",
        summary="Create a registered model",
        body=ask.CreateModel,
        example={"name": NAME, "description": "Finds ships."},
        answer=RegisteredModelAnswer,
        errors=(409, 503),
    ),
)
describe(
    models.GetView,
    get=model_call(
        id="get_registered_model",
        summary="Get a registered model",
        query=ask.Name,
        answer=RegisteredModelAnswer,
        errors=(404, 503),
    ),
)
describe(
    models.UpdateView,
    patch=model_call(
        id="update_registered_model",
        summary="Describe or rename a registered model",
        body=ask.UpdateModel,
        example={"name": NAME, "description": "Finds ships and boats."},
        answer=RegisteredModelAnswer,
        errors=(403, 404, 409, 503),
    ),
)
describe(
    models.DeleteView,
    delete=model_call(
        id="delete_registered_model",
        summary="Delete a registered model with its versions",
        text="Endpoints that serve one of them keep their copies as long as their replicas run.",
        body=ask.Name,
        example={"name": NAME},
        answer=NOTHING,
        errors=(403, 404, 503),
    ),
)
describe(
    models.SearchView,
    get=model_call(
        id="search_registered_models",
        summary="List registered models by name",
        query=ask.Page,
        answer=RegisteredModelPage,
        errors=(503,),
    ),
)
describe(
    models.SetTagView,
    post=model_call(
        id="set_registered_model_tag",
        summary="Set a tag of a registered model",
        body=ask.SetModelTag,
        example={"name": NAME, "key": "team", "value": "harbour"},
        answer=NOTHING,
        errors=(403, 404, 503),
    ),
)
describe(
    models.DeleteTagView,
    delete=model_call(
        id="delete_registered_model_tag",
        summary="Delete a tag of a registered model",
        body=ask.ModelTag,
        example={"name": NAME, "key": "team"},
        answer=NOTHING,
        errors=(403, 404, 503),
    ),
)
describe(
    models.AliasView,
    get=model_call(
        id="get_model_version_by_alias",
        summary="Get the version that an alias points to",
        query=ask.Alias,
        answer=ModelVersionAnswer,
        errors=(404, 503),
    ),
    post=model_call(
        id="set_registered_model_alias",
        summary="Point an alias to a version",
        body=ask.SetAlias,
        example={"name": NAME, "alias": "champion", "version": "1"},
        answer=NOTHING,
        errors=(403, 404, 503),
    ),
    delete=model_call(
        id="delete_registered_model_alias",
        summary="Delete an alias",
        body=ask.Alias,
        example={"name": NAME, "alias": "champion"},
        answer=NOTHING,
        errors=(403, 404, 503),
    ),
)
describe(
    models.UsesFilesApiView,
    get=model_call(
        id="get_upload_path",
        summary="Ask whether models are uploaded with the files API",
        answer=FilesApiAnswer,
    ),
)

# ---------------------------------------------------------------- model versions
describe(
    versions.CreateView,
    post=version_call(
        id="create_model_version",
        summary="Create a version that waits for its files",
        text="Upload the files to its `storage_location`, then finalize it.",
        body=ask.CreateVersion,
        example={"name": NAME, "source": "runs:/0a1b/model"},
        answer=ModelVersionAnswer,
        errors=(403, 404, 503),
    ),
)
describe(
    versions.GetView,
    get=version_call(
        id="get_model_version",
        summary="Get a version",
        query=ask.Version,
        answer=ModelVersionAnswer,
        errors=(404, 503),
    ),
)
describe(
    versions.UpdateView,
    patch=version_call(
        id="update_model_version",
        summary="Describe a version",
        body=ask.UpdateVersion,
        example={"name": NAME, "version": "1", "description": "Trained on the new images."},
        answer=ModelVersionAnswer,
        errors=(403, 404, 503),
    ),
)
describe(
    versions.DeleteView,
    delete=version_call(
        id="delete_model_version",
        summary="Delete a version with its files",
        text="Endpoints that serve it keep their copies as long as their replicas run.",
        body=ask.Version,
        example={"name": NAME, "version": "1"},
        answer=NOTHING,
        errors=(403, 404, 503),
    ),
)
describe(
    versions.SearchView,
    get=version_call(
        id="search_model_versions",
        summary="Search versions, newest first",
        text="`filter` is `name='…'`, `run_id='…'`, or both joined by AND.",
        query=ask.SearchVersions,
        answer=ModelVersionPage,
        errors=(503,),
    ),
)
describe(
    versions.FinalizeView,
    post=version_call(
        id="finalize_model_version",
        summary="Say that a version's files are complete",
        text="Its files cannot be changed afterwards. A second call changes nothing.",
        body=ask.Version,
        example={"name": NAME, "version": "1"},
        answer=ModelVersionAnswer,
        errors=(403, 404, 503),
    ),
)
describe(
    versions.CredentialsView,
    post=version_call(
        id="generate_temporary_credentials",
        summary="Ask where a version's files are kept",
        text="Always here: use the files API.",
        body=ask.Credentials,
        example={"name": NAME, "version": "1"},
        answer=CredentialsAnswer,
        errors=(403, 404, 503),
    ),
)
describe(
    versions.DownloadUriView,
    get=version_call(
        id="get_download_uri",
        summary="Get a version's folder in the files API",
        query=ask.Version,
        answer=DownloadUri,
        errors=(404, 503),
    ),
)
describe(
    versions.SetTagView,
    post=version_call(
        id="set_model_version_tag",
        summary="Set a tag of a version",
        body=ask.SetVersionTag,
        example={"name": NAME, "version": "1", "key": "data", "value": "2024"},
        answer=NOTHING,
        errors=(403, 404, 503),
    ),
)
describe(
    versions.DeleteTagView,
    delete=version_call(
        id="delete_model_version_tag",
        summary="Delete a tag of a version",
        body=ask.VersionTag,
        example={"name": NAME, "version": "1", "key": "data"},
        answer=NOTHING,
        errors=(403, 404, 503),
    ),
)
describe(
    versions.EmitLineageView,
    post=version_call(
        id="emit_lineage",
        summary="Note that a version was loaded",
        text="Clients send it at each load; nothing is kept.",
        body=ask.Version,
        example={"name": NAME, "version": "1"},
        answer=NOTHING,
        errors=(404, 503),
    ),
)
describe(
    versions.StageView,
    post=version_call(
        id="stage_deployment",
        summary="Start to unpack a version and its environment",
        text="Answers at once. A second call changes nothing.",
        body=ask.Stage,
        example={"model_name": NAME, "model_version": "1"},
        answer=NOTHING,
        errors=(403, 404, 503),
    ),
)
