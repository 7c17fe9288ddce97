"""Who may query, on two gateways, as the portal publishes it; and how fast a change is in force."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import redis

from portal import bus
from portal.accounts import groups
from portal.accounts.services import all_principals, create_token, set_active, set_admin
from portal.endpoints import services
from portal.endpoints.models import Replica
from portal.endpoints.routes import all_routes
from portal.endpoints.services import Grant
from portal.endpoints.states import PermissionLevel
from portal.registry.models import ModelVersion
from tests.support.factories import Person, UserFactory
from tests.support.gateway import VECTOR, GatewayServer, StandInReplica, wait_until_answered
from tests.support.permissions import Scene, cells, make_scene

pytestmark = pytest.mark.django_db(transaction=True)

BODY = {"inputs": [[1, 2, 3]]}
IN_FORCE_WITHIN_S = 2.0

# Columns: admin, creator, manager, querier, viewer, stranger, anonymous.
TABLE = """
    query            | 200  200  200  200  403  404  401
    query one entity | 200  200  200  200  403  404  401
    unknown endpoint | 404  404  404  404  404  404  401
"""
CODES = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "RESOURCE_DOES_NOT_EXIST"}


@pytest.fixture
def scene(valkey: redis.Redis, replica: StandInReplica) -> Scene:
    """A live endpoint whose replica is the stand-in, with everything published."""
    scene = make_scene()
    Replica.objects.update(address=replica.address)
    ModelVersion.objects.update(signature=VECTOR)
    bus.publish_all(all_routes(), all_principals())
    return scene


@pytest.fixture
def gateways(
    scene: Scene, start_gateway: Callable[..., GatewayServer]
) -> tuple[GatewayServer, GatewayServer]:
    """Two of them, as two web workers have them."""
    return start_gateway(), start_gateway()


def newcomer(name: str = "newcomer") -> Person:
    user = UserFactory(username=name)
    return Person(user=user, token=create_token(user)[1])


def in_force(gateways: tuple[GatewayServer, ...], person: Person, status: int) -> None:
    """Within the promised time, each gateway answers so; counted from now for all of them."""
    deadline = time.monotonic() + IN_FORCE_WITHIN_S
    for gateway in gateways:
        wait_until_answered(
            gateway,
            status,
            timeout_s=deadline - time.monotonic(),
            token=person.token,
            endpoint="detector",
        )


@pytest.mark.parametrize(("row", "who", "status"), cells(TABLE))
def test_the_gateway_lets_pass_whom_it_should(
    scene: Scene, gateways: tuple[GatewayServer, ...], row: str, who: str, status: int
) -> None:
    person = scene.person(who)

    for gateway in gateways:
        answer = gateway.ask(
            BODY,
            endpoint="other" if row == "unknown endpoint" else "detector",
            entity="main" if row == "query one entity" else None,
            token=person.token if person else None,
        )

        assert answer.status_code == status, answer.text
        if status >= 400:
            assert answer.json()["error_code"] == CODES[status]


def test_a_grant_and_its_end_are_in_force_at_once(
    scene: Scene, gateways: tuple[GatewayServer, ...]
) -> None:
    manager, person = scene.cast.manager.user, newcomer()
    in_force(gateways, person, 404)

    for level, status in (
        (PermissionLevel.CAN_QUERY, 200),
        (PermissionLevel.CAN_VIEW, 403),
        (PermissionLevel.CAN_MANAGE, 200),
    ):
        grant = Grant(level=level, user_name=person.user.username)
        services.set_permissions(manager, scene.endpoint, [grant], replace=False)
        in_force(gateways, person, status)

    services.remove_permission(manager, scene.endpoint, user_name=person.user.username)
    in_force(gateways, person, 404)


def test_replacing_the_list_shuts_out_who_is_not_named(
    scene: Scene, gateways: tuple[GatewayServer, ...]
) -> None:
    in_force(gateways, scene.cast.querier, 200)

    services.set_permissions(scene.creator.user, scene.endpoint, [], replace=True)

    in_force(gateways, scene.cast.querier, 404)
    in_force(gateways, scene.creator, 200)
    in_force(gateways, scene.cast.admin, 200)


def test_group_membership_is_in_force_at_once(
    scene: Scene, gateways: tuple[GatewayServer, ...]
) -> None:
    team, person = groups.create_group("team"), newcomer()
    grant = Grant(level=PermissionLevel.CAN_QUERY, group_name="team")
    services.set_permissions(scene.creator.user, scene.endpoint, [grant], replace=False)
    in_force(gateways, person, 404)

    groups.set_member(team, person.user, is_member=True)
    in_force(gateways, person, 200)

    groups.set_member(team, person.user, is_member=False)
    in_force(gateways, person, 404)


def test_a_deleted_group_takes_its_grants_with_it(
    scene: Scene, gateways: tuple[GatewayServer, ...]
) -> None:
    team, person = groups.create_group("team"), newcomer()
    groups.set_member(team, person.user, is_member=True)
    grant = Grant(level=PermissionLevel.CAN_QUERY, group_name="team")
    services.set_permissions(scene.creator.user, scene.endpoint, [grant], replace=False)
    in_force(gateways, person, 200)

    services.forget_group("team")
    groups.delete_group(team)

    in_force(gateways, person, 404)
    again = groups.create_group("team")
    groups.set_member(again, person.user, is_member=True)
    time.sleep(0.5)
    in_force(gateways, person, 404)


def test_everybody_is_in_the_group_users(scene: Scene, gateways: tuple[GatewayServer, ...]) -> None:
    grant = Grant(level=PermissionLevel.CAN_QUERY, group_name="users")
    services.set_permissions(scene.creator.user, scene.endpoint, [grant], replace=False)

    in_force(gateways, scene.cast.stranger, 200)
    in_force(gateways, newcomer(), 200)
    in_force(gateways, scene.cast.viewer, 200)  # the higher of two levels counts


def test_a_deactivated_user_is_refused_at_once_and_let_in_again(
    scene: Scene, gateways: tuple[GatewayServer, ...]
) -> None:
    in_force(gateways, scene.cast.querier, 200)

    set_active(scene.cast.querier.user, is_active=False)
    in_force(gateways, scene.cast.querier, 401)

    set_active(scene.cast.querier.user, is_active=True)
    in_force(gateways, scene.cast.querier, 200)


def test_the_admin_role_is_given_and_taken_at_once(
    scene: Scene, gateways: tuple[GatewayServer, ...]
) -> None:
    in_force(gateways, scene.cast.stranger, 404)

    set_admin(scene.cast.stranger.user, is_admin=True)
    in_force(gateways, scene.cast.stranger, 200)

    set_admin(scene.cast.stranger.user, is_admin=False)
    in_force(gateways, scene.cast.stranger, 404)
