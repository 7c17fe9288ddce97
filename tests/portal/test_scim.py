"""Users and groups over SCIM: with the unmodified client, and what it cannot bring to pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk import errors as sdk_errors
from databricks.sdk.service import iam
from django.contrib.auth.models import Group
from django.test import Client

from portal.accounts.models import ADMINS, USERS, User
from portal.accounts.services import ensure_groups
from portal.endpoints.models import EndpointPermission
from tests.support.factories import Cast, Person, live_endpoint, make_cast

BASE = "/api/2.0/preview/scim/v2"


@pytest.fixture
def cast(valkey: Any) -> Cast:
    ensure_groups()
    return make_cast()


def call(person: Person, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    answer = Client(headers=person.headers).generic(
        method, f"{BASE}{path}", json.dumps(body or {}), "application/json"
    )
    return answer.status_code, answer.json()


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"Operations": list(operations)}


# ---------------------------------------------------------------- the real client


@pytest.mark.django_db(transaction=True)
def test_the_sdk_makes_fills_and_deletes_a_group(live_server: Any, cast: Cast) -> None:
    groups = WorkspaceClient(host=live_server.url, token=cast.admin.token).groups
    viewer, querier = str(cast.viewer.user.pk), str(cast.querier.user.pk)

    made = groups.create(
        display_name="team",
        members=[iam.ComplexValue(value=viewer)],
        schemas=[iam.GroupSchema.URN_IETF_PARAMS_SCIM_SCHEMAS_CORE_2_0_GROUP],
    )
    assert made.id is not None
    with pytest.raises(sdk_errors.ResourceConflict):
        groups.create(display_name="team")

    def members() -> set[str | None]:
        return {member.value for member in groups.get(str(made.id)).members or []}

    def change(op: iam.PatchOp, path: str | None, value: Any) -> None:
        groups.patch(
            str(made.id),
            operations=[iam.Patch(op=op, path=path, value=value)],
            schemas=[iam.PatchSchema.URN_IETF_PARAMS_SCIM_API_MESSAGES_2_0_PATCH_OP],
        )

    change(iam.PatchOp.ADD, None, {"members": [{"value": querier}]})
    assert members() == {viewer, querier}
    change(iam.PatchOp.REMOVE, f'members[value eq "{viewer}"]', None)
    assert members() == {querier}
    change(iam.PatchOp.ADD, "members", [{"value": viewer}])
    groups.update(str(made.id), display_name="team", members=[iam.ComplexValue(value=viewer)])
    assert members() == {viewer}
    assert [group.id for group in groups.list(filter='displayName eq "team"')] == [made.id]
    assert [group.display_name for group in groups.list(filter='displayName sw "te"')] == ["team"]

    groups.delete(made.id)
    with pytest.raises(sdk_errors.ResourceDoesNotExist):
        groups.get(made.id)


@pytest.mark.django_db(transaction=True)
def test_the_sdk_makes_changes_and_shuts_out_a_user(live_server: Any, cast: Cast) -> None:
    users = WorkspaceClient(host=live_server.url, token=cast.admin.token).users

    made = users.create(
        user_name="maria@example.com",
        display_name="Maria Quiroga",
        emails=[iam.ComplexValue(value="m@example.com", primary=True)],
        entitlements=[iam.ComplexValue(value="workspace-access")],
    )
    assert made.id is not None
    assert (made.user_name, made.active) == ("maria@example.com", True)
    with pytest.raises(sdk_errors.ResourceConflict):
        users.create(user_name="maria@example.com")

    # The client leaves out a value that is false.
    users.patch(made.id, operations=[iam.Patch(op=iam.PatchOp.REPLACE, path="active", value=False)])
    assert users.get(made.id).active is False
    users.patch(made.id, operations=[iam.Patch(op=iam.PatchOp.REPLACE, value={"active": True})])
    users.update(made.id, user_name="maria@example.com", display_name="Maria Q.")
    changed = users.get(made.id)
    assert (changed.active, changed.display_name) == (True, "Maria Q.")
    assert changed.emails is not None
    assert changed.emails[0].value == "m@example.com"
    found = users.list(filter='userName eq "maria@example.com"')
    assert [user.id for user in found] == [made.id]
    assert {user.user_name for user in users.list(count=2)} >= {"admin", "maria@example.com"}

    users.delete(made.id)
    assert users.get(made.id).active is False


# ---------------------------------------------------------------- rules


@pytest.mark.django_db
def test_others_read_names_and_change_nothing(cast: Cast) -> None:
    group = Group.objects.create(name="team")
    admin = cast.admin.user.pk

    assert call(cast.viewer, "GET", "/Users")[0] == 200
    one = call(cast.viewer, "GET", f"/Users/{admin}")[1]
    assert "emails" not in one
    assert "groups" not in one
    assert "emails" in call(cast.viewer, "GET", f"/Users/{cast.viewer.user.pk}")[1]
    assert "members" not in call(cast.viewer, "GET", f"/Groups/{group.pk}")[1]
    assert call(cast.viewer, "GET", '/Users?filter=emails eq "a@b"')[0] == 400
    for method, path in (
        ("POST", "/Users"),
        ("PATCH", f"/Users/{admin}"),
        ("PUT", f"/Users/{admin}"),
        ("DELETE", f"/Users/{admin}"),
        ("POST", "/Groups"),
        ("PATCH", f"/Groups/{group.pk}"),
        ("PUT", f"/Groups/{group.pk}"),
        ("DELETE", f"/Groups/{group.pk}"),
    ):
        assert call(cast.viewer, method, path, {"userName": "x", "displayName": "x"})[0] == 403


@pytest.mark.django_db
def test_membership_in_admins_is_the_role_and_the_last_admin_stays(cast: Cast) -> None:
    admins = Group.objects.get(name=ADMINS)
    viewer, admin = cast.viewer.user, cast.admin.user

    joins = patch({"op": "add", "value": {"members": [{"value": str(viewer.pk)}]}})
    assert call(cast.admin, "PATCH", f"/Groups/{admins.pk}", joins)[0] == 200
    assert User.objects.get(pk=viewer.pk).is_workspace_admin

    status, error = call(cast.viewer, "PUT", f"/Groups/{admins.pk}", {"members": []})

    assert (status, error["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert admins.user_set.count() == 2  # all or nothing
    assert call(cast.viewer, "DELETE", f"/Users/{admin.pk}")[0] == 200
    assert call(cast.viewer, "DELETE", f"/Users/{viewer.pk}")[0] == 400


@pytest.mark.django_db
def test_who_is_shut_out_has_no_token_and_no_group(cast: Cast) -> None:
    team = Group.objects.create(name="team")
    cast.viewer.user.groups.add(team)

    assert call(cast.admin, "DELETE", f"/Users/{cast.viewer.user.pk}") == (200, {})

    user = User.objects.get(username="viewer")
    assert not user.is_active
    assert not user.groups.filter(name="team").exists()
    assert not user.tokens.filter(revoked_at=None).exists()
    assert Client(headers=cast.viewer.headers).get(f"{BASE}/Me").status_code == 401
    status, error = call(cast.admin, "POST", "/Users", {"userName": "viewer"})
    assert (status, error["error_code"]) == (409, "RESOURCE_ALREADY_EXISTS")


@pytest.mark.django_db
def test_a_deleted_group_takes_its_grants_with_it(cast: Cast) -> None:
    team = Group.objects.create(name="team")
    endpoint = live_endpoint(creator=cast.admin.user)
    EndpointPermission.objects.create(endpoint=endpoint, group_name="team", level="CAN_QUERY")

    assert call(cast.admin, "DELETE", f"/Groups/{team.pk}") == (200, {})

    assert not endpoint.permissions.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/Users", {"userName": "no spaces allowed"}),
        ("POST", "/Users", {"userName": "x", "emails": [{"value": "no address"}]}),
        ("POST", "/Users", {"userName": "x", "groups": [{"value": "999999"}]}),
        ("POST", "/Groups", {"displayName": "team", "members": [{"value": "999999"}]}),
        ("POST", "/Groups", {"displayName": "/"}),
        ("PATCH", "/Groups/{group}", patch({"op": "replace", "path": "displayName", "value": "x"})),
        ("PATCH", "/Groups/{group}", patch({"op": "add", "path": "owners", "value": "x"})),
        ("PATCH", "/Groups/{group}", patch({"op": "add", "value": [1]})),
        ("PATCH", "/Groups/{group}", patch({"op": "move", "path": "members"})),
        ("PATCH", "/Groups/{group}", patch()),
        ("PATCH", "/Groups/{users}", patch({"op": "remove", "path": "members"})),
        ("DELETE", "/Groups/{users}", None),
        ("PATCH", "/Users/{user}", patch({"op": "replace", "path": "active", "value": "maybe"})),
        ("PATCH", "/Users/{user}", patch({"op": "remove", "path": "emails"})),
        ("PATCH", "/Users/{user}", patch({"op": "replace", "path": "password", "value": "x"})),
        ("GET", "/Users?filter=nonsense", None),
        ("GET", '/Groups?filter=members eq "1"', None),
    ],
)
def test_what_cannot_be_is_refused_with_nothing_changed(
    cast: Cast, method: str, path: str, body: Any
) -> None:
    team = Group.objects.create(name="team" if "Groups" not in path else "team-0")
    team.user_set.add(cast.viewer.user)
    places = {
        "group": team.pk,
        "users": Group.objects.get(name=USERS).pk,
        "user": cast.viewer.user.pk,
    }

    status, error = call(cast.admin, method, path.format(**places), body)

    assert (status, error["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert set(Group.objects.values_list("name", flat=True)) == {ADMINS, USERS, team.name}
    assert list(team.user_set.all()) == [cast.viewer.user]
    assert User.objects.count() == 5
