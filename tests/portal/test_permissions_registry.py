"""Who reads and who writes a registered model, cell by cell: registry, files, pages, serving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests
from django.conf import settings
from django.test import Client

from portal.accounts import groups
from portal.accounts.models import User
from portal.accounts.services import create_token
from portal.endpoints import services as endpoints
from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.models import Endpoint
from portal.registry.models import ModelVersion
from portal.registry.services import Readers, set_readers
from portal.rest import InvalidParameterValue, PermissionDenied
from tests.support.factories import (
    AdminFactory,
    ModelAliasFactory,
    ModelVersionFactory,
    UserFactory,
    live_endpoint,
)
from tests.support.live_portal import Files, LivePortal
from tests.support.permissions import cells

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

NAME = "main.default.detector"
CATALOG = "/api/2.0/mlflow/unity-catalog"
FILES = "/api/2.0/fs"
FOLDER = "/Models/main/default/detector/1"
WHO = ("owner", "admin", "listed", "member", "other", "anonymous")
"""`listed` is listed by name, `member` through a group; `other` is neither."""
CODES = {
    401: {"UNAUTHENTICATED"},
    403: {"PERMISSION_DENIED"},
    404: {"RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"},
}
GRANT = {"access_control_list": [{"user_name": "other", "permission_level": "CAN_READ"}]}

# Columns: owner, admin, listed, member, other, anonymous.
OPEN_TABLE = """
    get model          | 200  200  200  200  200  401
    get version        | 200  200  200  200  200  401
    get by alias       | 200  200  200  200  200  401
    download address   | 200  200  200  200  200  401
    read credentials   | 200  200  200  200  200  401
    lineage            | 200  200  200  200  200  401
    list directory     | 200  200  200  200  200  401
    download link      | 200  200  200  200  200  401
    readers            | 200  200  200  200  200  401
    reading levels     | 200  200  200  200  200  401
    describe model     | 200  200  403  403  403  401
    rename model       | 200  200  403  403  403  401
    tag model          | 200  200  403  403  403  401
    untag model        | 200  200  403  403  403  401
    set alias          | 200  200  403  403  403  401
    delete alias       | 200  200  403  403  403  401
    create version     | 200  200  403  403  403  401
    describe version   | 200  200  403  403  403  401
    tag version        | 200  200  403  403  403  401
    untag version      | 200  200  403  403  403  401
    finalize           | 200  200  403  403  403  401
    write credentials  | 200  200  403  403  403  401
    stage              | 200  200  403  403  403  401
    upload link        | 400  400  403  403  403  401
    begin upload       | 400  400  403  403  403  401
    make directory     | 400  400  403  403  403  401
    delete file        | 400  400  403  403  403  401
    set readers        | 200  200  403  403  403  401
    add readers        | 200  200  403  403  403  401
    delete version     | 200  200  403  403  403  401
    delete model       | 200  200  403  403  403  401
"""
RESTRICTED_TABLE = """
    get model          | 200  200  200  200  404  401
    get version        | 200  200  200  200  404  401
    get by alias       | 200  200  200  200  404  401
    download address   | 200  200  200  200  404  401
    read credentials   | 200  200  200  200  404  401
    lineage            | 200  200  200  200  404  401
    list directory     | 200  200  200  200  404  401
    download link      | 200  200  200  200  404  401
    readers            | 200  200  200  200  404  401
    reading levels     | 200  200  200  200  404  401
    describe model     | 200  200  403  403  404  401
    rename model       | 200  200  403  403  404  401
    tag model          | 200  200  403  403  404  401
    untag model        | 200  200  403  403  404  401
    set alias          | 200  200  403  403  404  401
    delete alias       | 200  200  403  403  404  401
    create version     | 200  200  403  403  404  401
    describe version   | 200  200  403  403  404  401
    tag version        | 200  200  403  403  404  401
    untag version      | 200  200  403  403  404  401
    finalize           | 200  200  403  403  404  401
    write credentials  | 200  200  403  403  404  401
    stage              | 200  200  403  403  404  401
    upload link        | 400  400  403  403  404  401
    begin upload       | 400  400  403  403  404  401
    make directory     | 400  400  403  403  404  401
    delete file        | 400  400  403  403  404  401
    set readers        | 200  200  403  403  404  401
    add readers        | 200  200  403  403  404  401
    delete version     | 200  200  403  403  404  401
    delete model       | 200  200  403  403  404  401
"""
MODELS, VERSIONS = f"{CATALOG}/registered-models", f"{CATALOG}/model-versions"
ONE = {"name": NAME, "version": "1"}
TAG = {"key": "team", "value": "vision"}
ACCESS = f"/api/2.0/permissions/registered-models/{NAME}"
READ_WRITE = {"operation": "MODEL_VERSION_OPERATION_READ_WRITE"}
CALLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "get model": ("GET", f"{MODELS}/get", {"name": NAME}),
    "get version": ("GET", f"{VERSIONS}/get", ONE),
    "get by alias": ("GET", f"{MODELS}/alias", {"name": NAME, "alias": "champion"}),
    "download address": ("GET", f"{VERSIONS}/get-download-uri", ONE),
    "read credentials": ("POST", f"{VERSIONS}/generate-temporary-credentials", ONE),
    "lineage": ("POST", f"{VERSIONS}/emit-lineage", ONE),
    "list directory": ("GET", f"{FILES}/directories{FOLDER}", {}),
    "download link": ("POST", f"{FILES}/create-download-url", {"path": f"{FOLDER}/MLmodel"}),
    "readers": ("GET", ACCESS, {}),
    "reading levels": ("GET", f"{ACCESS}/permissionLevels", {}),
    "describe model": ("PATCH", f"{MODELS}/update", {"name": NAME, "description": "x"}),
    "rename model": ("PATCH", f"{MODELS}/update", {"name": NAME, "new_name": f"{NAME}2"}),
    "tag model": ("POST", f"{MODELS}/set-tag", {"name": NAME, **TAG}),
    "untag model": ("DELETE", f"{MODELS}/delete-tag", {"name": NAME, "key": "team"}),
    "set alias": ("POST", f"{MODELS}/alias", {**ONE, "alias": "challenger"}),
    "delete alias": ("DELETE", f"{MODELS}/alias", {"name": NAME, "alias": "champion"}),
    "create version": ("POST", f"{VERSIONS}/create", {"name": NAME, "source": "s"}),
    "describe version": ("PATCH", f"{VERSIONS}/update", {**ONE, "description": "x"}),
    "tag version": ("POST", f"{VERSIONS}/set-tag", {**ONE, **TAG}),
    "untag version": ("DELETE", f"{VERSIONS}/delete-tag", {**ONE, "key": "team"}),
    "finalize": ("POST", f"{VERSIONS}/finalize", ONE),
    "write credentials": (
        "POST",
        f"{VERSIONS}/generate-temporary-credentials",
        {**ONE, **READ_WRITE},
    ),
    "stage": (
        "POST",
        "/api/2.0/serving-endpoints:stageDeployment",
        {"model_name": NAME, "model_version": "1"},
    ),
    # The version is finalized: whoever may write is told so.
    "upload link": ("POST", f"{FILES}/create-upload-url", {"path": f"{FOLDER}/new"}),
    "begin upload": ("POST", f"{FILES}/files{FOLDER}/new?action=initiate-upload", {}),
    "make directory": ("PUT", f"{FILES}/directories{FOLDER}/new", {}),
    "delete file": ("DELETE", f"{FILES}/files{FOLDER}/MLmodel", {}),
    "set readers": ("PUT", ACCESS, GRANT),
    "add readers": ("PATCH", ACCESS, GRANT),
    "delete version": ("DELETE", f"{VERSIONS}/delete", ONE),
    "delete model": ("DELETE", f"{MODELS}/delete", {"name": NAME}),
}
# Columns as above.
PAGES_TABLE = """
    models/{name}/                     | 200  200  200  200  404  302
    models/{name}/versions/1/          | 200  200  200  200  404  302
    models/{name}/versions/1/status/   | 200  200  200  200  404  302
    POST models/{name}/readers/        | 302  302  403  403  404  302
    POST models/{name}/versions/1/stage/ | 302  302  403  403  404  302
"""


@pytest.fixture
def people() -> dict[str, User | None]:
    team = groups.create_group("team")
    member = UserFactory(username="member")
    groups.set_member(team, member, is_member=True)
    return {
        "owner": UserFactory(username="owner"),
        "admin": AdminFactory(username="admin"),
        "listed": UserFactory(username="listed"),
        "member": member,
        "other": UserFactory(username="other"),
        "anonymous": None,
    }


@pytest.fixture
def version(people: dict[str, User | None]) -> ModelVersion:
    """A finalized, staged version with a file and an alias; its readers listed, not restricted."""
    found: ModelVersion = ModelVersionFactory(
        model__name=NAME, model__owner=people["owner"], staged=True
    )
    ModelAliasFactory(model_version=found)
    folder = Path(settings.FILES_DIR, FOLDER[1:])
    folder.mkdir(parents=True)
    (folder / "MLmodel").write_text("flavors: {}\n")
    share(found, is_restricted=False)
    return found


def share(version: ModelVersion, *, is_restricted: bool) -> None:
    readers = Readers(is_restricted=is_restricted, user_names=("listed",), group_names=("team",))
    set_readers(version.model.owner, version.model, readers)


def call(user: User | None, row: str) -> Any:
    method, path, arguments = CALLS[row]
    headers = {"Authorization": f"Bearer {create_token(user)[1]}"} if user else {}
    client = Client(headers=headers)
    if method == "GET":
        return client.get(path, arguments)
    return client.generic(method, path, json.dumps(arguments), "application/json")


def check(answer: Any, status: int) -> None:
    is_made = status == 200 and answer.status_code == 204
    assert answer.status_code == status or is_made, answer.content
    if status in CODES:
        assert answer.json()["error_code"] in CODES[status]


@pytest.mark.parametrize(("row", "who", "status"), cells(OPEN_TABLE, WHO))
def test_everybody_reads_and_the_owner_writes(
    people: dict[str, User | None], version: ModelVersion, row: str, who: str, status: int
) -> None:
    check(call(people[who], row), status)


@pytest.mark.parametrize(("row", "who", "status"), cells(RESTRICTED_TABLE, WHO))
def test_a_restricted_model_is_there_only_for_its_readers(
    people: dict[str, User | None], version: ModelVersion, row: str, who: str, status: int
) -> None:
    share(version, is_restricted=True)

    check(call(people[who], row), status)


@pytest.mark.parametrize(("row", "who", "status"), cells(PAGES_TABLE, WHO))
def test_the_pages_of_a_restricted_model(
    people: dict[str, User | None], version: ModelVersion, row: str, who: str, status: int
) -> None:
    share(version, is_restricted=True)
    client = Client()
    if user := people[who]:
        client.force_login(user)

    path = "/" + row.removeprefix("POST ").format(name=NAME)
    is_post = row.startswith("POST")
    answer = client.post(path, {"action": "open"}) if is_post else client.get(path)

    assert answer.status_code == status


@pytest.mark.parametrize("who", WHO[:-1])
def test_searches_hold_only_what_the_caller_reads(
    people: dict[str, User | None], version: ModelVersion, who: str
) -> None:
    share(version, is_restricted=True)
    user = people[who]
    assert user
    client = Client(headers={"Authorization": f"Bearer {create_token(user)[1]}"})
    browser = Client()
    browser.force_login(user)

    models = client.get(f"{MODELS}/search").json()["registered_models"]
    versions = client.get(f"{VERSIONS}/search", {"filter": f"name='{NAME}'"}).json()
    page = browser.get("/models/").content.decode()
    form = browser.get("/endpoints/new/").content.decode()

    found = {bool(models), bool(versions["model_versions"]), NAME in page, NAME in form}
    assert found == {who != "other"}


def test_a_hidden_model_looks_like_one_that_is_not_there(
    people: dict[str, User | None], version: ModelVersion
) -> None:
    share(version, is_restricted=True)
    client = Client(headers={"Authorization": f"Bearer {create_token(people['other'])[1]}"})  # type: ignore[arg-type]  # not anonymous

    hidden = client.get(f"{MODELS}/get", {"name": NAME}).json()
    missing = client.get(f"{MODELS}/get", {"name": "main.default.missing"}).json()

    assert hidden["error_code"] == missing["error_code"]
    assert hidden["message"].replace(NAME, "") == missing["message"].replace(
        "main.default.missing", ""
    )


# ---------------------------------------------------------------- serving


def wanted(name: str = "serving") -> EndpointInput:
    entity = EntityInput(entity_name=NAME, entity_version="1", name="main")
    return EndpointInput(name=name, entities=(entity,))


@pytest.mark.parametrize("who", WHO[:-1])
def test_only_readers_serve_a_restricted_model(
    people: dict[str, User | None], version: ModelVersion, who: str
) -> None:
    share(version, is_restricted=True)
    user = people[who]
    assert user

    if who == "other":
        with pytest.raises(InvalidParameterValue, match="There is no registered model"):
            endpoints.create_endpoint(user, wanted())
    else:
        assert endpoints.create_endpoint(user, wanted()).creator == user


def test_an_update_needs_a_creator_who_still_reads_the_model(
    people: dict[str, User | None], version: ModelVersion
) -> None:
    other, admin = people["other"], people["admin"]
    assert other
    assert admin
    endpoint = live_endpoint(creator=other, model_version=version)
    share(version, is_restricted=True)

    for act in (
        lambda: endpoints.update_config(admin, endpoint, wanted().entities),
        lambda: endpoints.retry_deployment(admin, endpoint),
    ):
        with pytest.raises(PermissionDenied, match="may not read the model"):
            act()
    Endpoint.objects.filter(pk=endpoint.pk).update(is_stopped=True)
    with pytest.raises(PermissionDenied, match="may not read the model"):
        endpoints.start_endpoint(admin, Endpoint.objects.get(pk=endpoint.pk))

    share(version, is_restricted=False)
    endpoints.start_endpoint(admin, Endpoint.objects.get(pk=endpoint.pk))


def test_an_update_needs_an_active_creator(
    people: dict[str, User | None], version: ModelVersion
) -> None:
    other, admin = people["other"], people["admin"]
    assert other
    assert admin
    endpoint = live_endpoint(creator=other, model_version=version)
    User.objects.filter(pk=other.pk).update(is_active=False)

    with pytest.raises(PermissionDenied, match="no longer active"):
        endpoints.update_config(admin, endpoint, wanted().entities)


def test_a_manager_keeps_what_is_served_but_adds_no_model_that_is_hidden_from_them(
    people: dict[str, User | None], version: ModelVersion
) -> None:
    owner, other = people["owner"], people["other"]
    assert owner
    assert other
    share(version, is_restricted=True)
    grant = endpoints.Grant(level="CAN_MANAGE", user_name="other")  # type: ignore[arg-type]  # its value
    serving = live_endpoint(creator=owner, model_version=version)
    elsewhere = live_endpoint(creator=owner)
    for endpoint in (serving, elsewhere):
        endpoints.set_permissions(owner, endpoint, [grant], replace=False)

    endpoints.update_config(other, serving, wanted().entities)
    with pytest.raises(InvalidParameterValue, match="There is no registered model"):
        endpoints.update_config(other, elsewhere, wanted().entities)


# ---------------------------------------------------------------- the bytes of files


def test_files_of_a_restricted_model_stream_only_to_its_readers(live_portal: LivePortal) -> None:
    owner = Files(live_portal, live_portal.token("files-owner"))
    other = Files(live_portal, live_portal.token("files-other"))
    name = "main.default.restricted_files"
    path = f"{owner.new_version(name)}/weights"
    assert owner.file("PUT", path, data=b"secret").status_code == 204
    link = other("POST", f"{FILES}/create-download-url", json={"path": path}).json()["url"]
    assert other.file("GET", path).content == b"secret"
    assert requests.get(link, timeout=10).content == b"secret"

    access = f"/api/2.0/permissions/registered-models/{name}"
    assert owner("PUT", access, json={}).status_code == 200

    for method in ("GET", "HEAD"):
        assert owner.file(method, path).status_code == 200
        assert other.file(method, path).status_code == 404
    assert other.file("PUT", path, data=b"x").status_code == 404
    assert requests.get(link, timeout=10).status_code == 404  # a link made before
    grant = {"access_control_list": [{"user_name": "files-other", "permission_level": "CAN_READ"}]}
    assert owner("PATCH", access, json=grant).status_code == 200
    assert other.file("GET", path).content == b"secret"
    assert other.file("PUT", path, data=b"x").status_code == 403
