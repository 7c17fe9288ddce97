"""Sharing endpoints, models and groups: the real SDK, the editors on the pages, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk import errors as sdk_errors
from databricks.sdk.service import iam
from databricks.sdk.service import serving as sdk
from django.contrib.auth.models import Group
from django.test import Client

from portal.accounts import groups
from portal.accounts.models import User
from portal.accounts.services import create_token
from portal.registry.models import RegisteredModel
from tests.support.factories import (
    AdminFactory,
    ModelVersionFactory,
    Person,
    UserFactory,
    live_endpoint,
)
from tests.support.permissions import Scene, make_scene

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
MODEL = "main.default.detector"


@pytest.fixture
def scene() -> Scene:
    return make_scene()


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def held(scene: Scene) -> dict[str, str]:
    """Name to level, as granted."""
    rows = scene.endpoint.permissions.select_related("user")
    return {row.user.username if row.user else row.group_name: row.level for row in rows}


# ---------------------------------------------------------------- the SDK


@pytest.fixture
def client(live_server: Any, transactional_db: None) -> Any:
    """Makes SDK clients of persons."""

    def make(person: Person) -> WorkspaceClient:
        return WorkspaceClient(host=live_server.url, token=person.token, auth_type="pat")

    return make


def entries(found: sdk.ServingEndpointPermissions) -> dict[str, list[tuple[str, bool]]]:
    return {
        str(entry.user_name or entry.group_name): [
            (permission.permission_level.value, bool(permission.inherited))
            for permission in entry.all_permissions or []
            if permission.permission_level
        ]
        for entry in found.access_control_list or []
    }


def request(level: str, **principal: str) -> sdk.ServingEndpointAccessControlRequest:
    return sdk.ServingEndpointAccessControlRequest(
        permission_level=sdk.ServingEndpointPermissionLevel(level), **principal
    )


def test_the_real_sdk_reads_and_changes_permissions(client: Any, valkey: Any) -> None:
    scene = make_scene()
    api = client(scene.creator).serving_endpoints
    identity = scene.endpoint.public_id
    always = {"creator": [("CAN_MANAGE", False)], "admins": [("CAN_MANAGE", True)]}

    assert entries(api.get_permissions(identity)) == always | {
        "manager": [("CAN_MANAGE", False)],
        "querier": [("CAN_QUERY", False)],
        "viewer": [("CAN_VIEW", False)],
    }
    changed = api.update_permissions(
        identity,
        access_control_list=[
            request("CAN_VIEW", group_name="users"),
            request("CAN_MANAGE", service_principal_name="viewer"),
        ],
    )
    assert entries(changed)["users"] == [("CAN_VIEW", False)]
    assert entries(changed)["viewer"] == [("CAN_MANAGE", False)]
    assert changed.object_id == f"/serving-endpoints/{identity}"
    assert changed.object_type == "serving-endpoint"

    # What was read can be written back as it is.
    back = [
        request(
            levels[0][0], **{"group_name" if name in {"users", "admins"} else "user_name": name}
        )
        for name, levels in entries(changed).items()
    ]
    assert entries(api.set_permissions(identity, access_control_list=back)) == entries(changed)
    only = api.set_permissions(
        identity, access_control_list=[request("CAN_QUERY", user_name="querier")]
    )
    assert entries(only) == always | {"querier": [("CAN_QUERY", False)]}
    assert entries(api.get_permissions(identity)) == entries(only)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"user_name": "nobody", "permission_level": "CAN_VIEW"}, "no user “nobody”"),
        ({"service_principal_name": "robot", "permission_level": "CAN_VIEW"}, "no user “robot”"),
        ({"group_name": "nobodies", "permission_level": "CAN_VIEW"}, "no group “nobodies”"),
        ({"user_name": "viewer", "permission_level": "CAN_READ"}, "CAN_VIEW, CAN_QUERY"),
        ({"user_name": "viewer"}, "CAN_VIEW, CAN_QUERY"),
        ({"permission_level": "CAN_VIEW"}, "Name one of"),
        (
            {"user_name": "viewer", "group_name": "users", "permission_level": "CAN_VIEW"},
            "Name one of",
        ),
        (
            {"user_name": "viewer", "service_principal_name": "x", "permission_level": "CAN_VIEW"},
            "Name one of",
        ),
        ({"user_name": "creator", "permission_level": "CAN_VIEW"}, "cannot be locked out"),
        ({"group_name": "admins", "permission_level": "CAN_QUERY"}, "cannot be locked out"),
    ],
)
@pytest.mark.parametrize("method", ["put", "patch"])
def test_a_list_that_cannot_be_is_refused_whole(
    scene: Scene, method: str, body: dict[str, str], words: str
) -> None:
    before = held(scene)
    good = {"user_name": "stranger", "permission_level": "CAN_VIEW"}

    answer = getattr(Client(headers=scene.creator.headers), method)(
        f"/api/2.0/permissions/serving-endpoints/{scene.endpoint.public_id}",
        {"access_control_list": [good, body]},
        "application/json",
    )

    assert answer.status_code == 400
    assert answer.json()["error_code"] == "INVALID_PARAMETER_VALUE"
    assert words in answer.json()["message"]
    assert held(scene) == before


def test_one_name_twice_is_refused(scene: Scene) -> None:
    twice = [
        {"user_name": "viewer", "permission_level": level} for level in ("CAN_VIEW", "CAN_QUERY")
    ]

    answer = Client(headers=scene.creator.headers).put(
        f"/api/2.0/permissions/serving-endpoints/{scene.endpoint.public_id}",
        {"access_control_list": twice},
        "application/json",
    )

    assert "named twice" in answer.json()["message"]


def test_permissions_take_the_id_and_not_the_name(scene: Scene) -> None:
    answer = Client(headers=scene.creator.headers).get(
        "/api/2.0/permissions/serving-endpoints/detector"
    )

    assert answer.status_code == 404


def test_the_real_sdk_restricts_and_shares_a_model(client: Any, valkey: Any) -> None:
    scene = make_scene()
    ModelVersionFactory(model__name=MODEL, model__owner=scene.creator.user)
    mine, theirs = client(scene.creator).permissions, client(scene.cast.stranger).permissions

    open_to = {
        entry.group_name for entry in theirs.get("registered-models", MODEL).access_control_list
    }
    mine.set("registered-models", MODEL, access_control_list=[])
    with pytest.raises(sdk_errors.ResourceDoesNotExist):
        theirs.get("registered-models", MODEL)
    reader = iam.AccessControlRequest(
        user_name="stranger", permission_level=iam.PermissionLevel.CAN_READ
    )
    mine.update("registered-models", MODEL, access_control_list=[reader])
    found = theirs.get("registered-models", MODEL)
    with pytest.raises(sdk_errors.PermissionDenied):
        theirs.update("registered-models", MODEL, access_control_list=[reader])
    levels = mine.get_permission_levels("registered-models", MODEL).permission_levels

    assert "users" in open_to
    assert [entry.user_name or entry.group_name for entry in found.access_control_list] == [
        "creator",
        "admins",
        "stranger",
    ]
    assert [level.permission_level.value for level in levels] == ["CAN_READ", "CAN_MANAGE"]


def test_the_real_sdk_lists_groups(client: Any, valkey: Any) -> None:
    scene = make_scene()
    team = groups.create_group("team")
    groups.set_member(team, scene.cast.viewer.user, is_member=True)
    Group.objects.get_or_create(name="users")

    seen = {group.display_name: group for group in client(scene.cast.admin).groups.list()}
    others = {group.display_name: group for group in client(scene.cast.viewer).groups.list()}
    named = list(client(scene.cast.viewer).groups.list(filter='displayName eq "team"'))

    assert set(seen) == set(others) == {"admins", "team", "users"}
    assert [member.display for member in seen["team"].members or []] == ["viewer"]
    assert not others["team"].members
    assert [group.display_name for group in named] == ["team"]
    assert {g.display for g in client(scene.cast.viewer).current_user.me().groups} == {"team"}


# ---------------------------------------------------------------- the endpoint's Settings tab


def share(client: Client, **form: str) -> Any:
    return client.post("/endpoints/detector/permissions/", {"action": "add", **form})


def test_a_manager_adds_changes_and_removes_on_the_page(scene: Scene) -> None:
    client = browser(scene.cast.manager.user)

    share(client, kind="user", who="stranger", level="CAN_VIEW")
    share(client, kind="group", who="users", level="CAN_QUERY")
    answer = share(client, kind="user", who=" viewer ", level="CAN_QUERY")
    page = client.get("/endpoints/detector/settings/").content.decode()

    assert answer["Location"] == "/endpoints/detector/settings/#permissions"
    assert held(scene) == {
        "manager": "CAN_MANAGE",
        "querier": "CAN_QUERY",
        "viewer": "CAN_QUERY",
        "stranger": "CAN_VIEW",
        "users": "CAN_QUERY",
    }
    assert "viewer can query detector." in page
    share(client, kind="user", who="stranger", action="remove")
    share(client, kind="group", who="users", action="remove")
    assert {"stranger", "users"}.isdisjoint(held(scene))


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"kind": "user", "who": "nobody", "level": "CAN_VIEW"}, "There is no user “nobody”."),
        ({"kind": "group", "who": "viewer", "level": "CAN_VIEW"}, "There is no group “viewer”."),
        ({"kind": "user", "who": "creator", "level": "CAN_VIEW"}, "cannot be locked out"),
        ({"kind": "user", "who": "viewer", "level": "CAN_DANCE"}, "Pick what they may do."),
        ({"kind": "user", "who": "", "level": "CAN_VIEW"}, "There is no"),
    ],
)
def test_what_is_refused_is_said_at_the_form(
    scene: Scene, form: dict[str, str], words: str
) -> None:
    before = held(scene)

    answer = share(browser(scene.cast.manager.user), **form)

    page = answer.content.decode()
    assert answer.status_code == 400
    assert words in page
    assert f'value="{form["who"]}"' in page
    assert held(scene) == before


def test_who_takes_the_right_from_themselves_lands_on_the_list(scene: Scene) -> None:
    answer = share(browser(scene.cast.manager.user), kind="user", who="manager", action="remove")

    assert answer["Location"] == "/"


def test_a_viewer_reads_who_may_do_what(scene: Scene) -> None:
    page = browser(scene.cast.viewer.user).get("/endpoints/detector/settings/").content.decode()

    for words in ("(creator)", "(inherited)", "querier", "Can query"):
        assert words in page
    assert "known" not in page
    assert "share-form" not in page


# ---------------------------------------------------------------- the model's page


def test_an_owner_restricts_and_shares_on_the_page() -> None:
    owner, reader = UserFactory(username="owner"), UserFactory(username="reader")
    ModelVersionFactory(model__name=MODEL, model__owner=owner)
    client, other = browser(owner), browser(reader)
    url = f"/models/{MODEL}/"

    assert "Everybody in the workspace" in other.get(url).content.decode()
    client.post(f"{url}readers/", {"action": "restrict"})
    assert other.get(url).status_code == 404
    client.post(f"{url}readers/", {"action": "add", "kind": "user", "who": "reader"})
    page = other.get(url).content.decode()
    assert "Restricted" in page
    assert "share-form" not in page
    refused = client.post(f"{url}readers/", {"action": "add", "kind": "group", "who": "ghosts"})
    assert refused.status_code == 400
    assert "There is no group “ghosts”." in refused.content.decode()
    client.post(f"{url}readers/", {"action": "remove", "kind": "user", "who": "reader"})
    assert other.get(url).status_code == 404
    client.post(f"{url}readers/", {"action": "open"})
    assert other.get(url).status_code == 200
    assert not RegisteredModel.objects.get(name=MODEL).is_restricted


# ---------------------------------------------------------------- groups


def test_an_admin_makes_a_group_and_changes_its_members() -> None:
    UserFactory(username="anna")
    client = browser(AdminFactory(username="boss"))

    made = client.post("/settings/groups/", {"name": "vision team"})
    url = made["Location"]
    client.post(f"{url}members/", {"user": "anna"})
    page = client.get(url).content.decode()
    assert "anna is now in vision team." in page
    assert User.objects.get(username="anna").group_names == {"users", "vision team"}
    unknown = client.post(f"{url}members/", {"user": "nobody"})
    assert unknown.status_code == 400
    client.post(f"{url}members/", {"user": "anna", "action": "remove"})
    assert User.objects.get(username="anna").group_names == {"users"}
    assert "vision team" in client.get("/settings/groups/").content.decode()


def test_a_deleted_group_leaves_nothing_behind() -> None:
    owner = UserFactory()
    team = groups.create_group("team")
    endpoint = live_endpoint(creator=owner)
    version = ModelVersionFactory(model__owner=owner)
    headers = {"Authorization": f"Bearer {create_token(owner)[1]}"}
    for path, level in (
        (f"serving-endpoints/{endpoint.public_id}", "CAN_VIEW"),
        (f"registered-models/{version.model.name}", "CAN_READ"),
    ):
        grant = {"access_control_list": [{"group_name": "team", "permission_level": level}]}
        answer = Client(headers=headers).put(
            f"/api/2.0/permissions/{path}", grant, "application/json"
        )
        assert answer.status_code == 200, answer.content

    browser(AdminFactory()).post(f"/settings/groups/{team.pk}/delete/")

    assert not Group.objects.filter(name="team").exists()
    assert not endpoint.permissions.exists()
    assert not version.model.readers.exists()


@pytest.mark.parametrize("name", ["", "-", "a\nb", "x" * 151, "admins"])
def test_a_bad_name_for_a_group_is_refused(name: str) -> None:
    Group.objects.get_or_create(name="admins")

    answer = browser(AdminFactory()).post("/settings/groups/", {"name": name})

    assert answer.status_code == 400


def test_the_two_groups_that_are_always_there_stay() -> None:
    admin = AdminFactory()
    users, _ = Group.objects.get_or_create(name="users")
    client = browser(admin)

    client.post(f"/settings/groups/{users.pk}/delete/")
    out = client.post(f"/settings/groups/{users.pk}/members/", {"user": admin.username})
    admins = Group.objects.get(name="admins")
    last = client.post(
        f"/settings/groups/{admins.pk}/members/", {"user": admin.username, "action": "remove"}
    )

    assert Group.objects.filter(name="users").exists()
    assert out.status_code == last.status_code == 400
    assert admin.groups.filter(name="admins").exists()


@pytest.mark.parametrize("path", ["", "1/", "1/delete/"])
def test_only_admins_see_groups(path: str) -> None:
    client = browser(UserFactory())

    assert client.get(f"/settings/groups/{path}").status_code == 403
    assert client.post("/settings/groups/1/members/", {"user": "x"}).status_code == 403
