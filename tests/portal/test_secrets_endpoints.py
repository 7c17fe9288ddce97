"""Secrets as values of a served entity's environment variables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from portal.endpoints import services as endpoints
from portal.endpoints.deployment import start
from portal.endpoints.deployment.outcomes import StepFailed
from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.models import BackendDecision, Endpoint, EndpointPermission
from portal.registry.models import ModelVersion
from portal.rest import InvalidParameterValue
from portal.secrets import services
from portal.secrets.services import SecretUnavailable, resolve_all
from portal.secrets.services.references import MAX_VARIABLE_BYTES
from portal.secrets.states import ScopePermission
from tests.support.endpoint_form import browser, with_fields
from tests.support.factories import (
    BackendDecisionFactory,
    Cast,
    ModelVersionFactory,
    make_cast,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

VALUE = "correct-horse-battery-staple"
REFERENCE = "{{secrets/db/password}}"
FIELD = "config.served_entities[0].environment_vars"


@pytest.fixture
def cast() -> Cast:
    cast = make_cast()
    services.create_scope(cast.admin.user, "db")
    services.put_secret(cast.admin.user, "db", "password", VALUE.encode())
    services.put_acl(cast.admin.user, "db", "manager", ScopePermission.READ)
    return cast


@pytest.fixture
def version() -> ModelVersion:
    return ModelVersionFactory(staged=True)


def entity(version: ModelVersion, **variables: str) -> EntityInput:
    return EntityInput(
        entity_name=version.model.name,
        entity_version="1",
        name="main",
        environment_vars=variables,
    )


def create(cast: Cast, version: ModelVersion, who: str = "manager", **variables: str) -> Endpoint:
    wanted = EndpointInput(name="e", entities=(entity(version, **variables),))
    return endpoints.create_endpoint(getattr(cast, who).user, wanted)


def refusal(refused: pytest.ExceptionInfo[InvalidParameterValue]) -> str:
    (detail,) = refused.value.details
    assert detail["field"] == FIELD
    return str(detail["message"])


# ---------------------------------------------------------------- accepted or refused


def test_a_reference_stays_one_in_rows_answers_and_pages(cast: Cast, version: ModelVersion) -> None:
    endpoint = create(cast, version, DB_PASSWORD=REFERENCE, PLAIN="shown")

    assert endpoint.pending_config is not None
    kept = endpoint.pending_config.entities.get().environment_vars
    assert kept == {"DB_PASSWORD": REFERENCE, "PLAIN": "shown"}
    api = Client(headers=cast.manager.headers).get("/api/2.0/serving-endpoints/e")
    pages = browser(cast.manager)
    shown = [api.content.decode()]
    for name in ("endpoint", "endpoint-edit", "endpoint-settings", "endpoint-events"):
        shown.append(pages.get(reverse(name, args=["e"])).content.decode())
    assert all(VALUE not in text for text in shown)
    assert (
        api.json()["pending_config"]["served_entities"][0]["environment_vars"]["DB_PASSWORD"]
        == REFERENCE
    )
    assert REFERENCE in shown[2]


def test_the_creator_needs_read(cast: Cast, version: ModelVersion) -> None:
    with pytest.raises(InvalidParameterValue) as refused:
        create(cast, version, who="stranger", DB_PASSWORD=REFERENCE)

    assert refusal(refused) == (
        "DB_PASSWORD: there is no secret scope “db”, or stranger has no READ permission on it."
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{{secrets/db/nope}}", "secret scope “db” has no key “nope”"),
        ("{{secrets/nope/password}}", "there is no secret scope “nope”"),
        ("{{secrets/db}}", "looks like a secret but is none"),
        ("{{secrets/a/b/c}}", "looks like a secret but is none"),
        ("{{ secrets/ }}", "looks like a secret but is none"),
    ],
)
def test_what_cannot_be_resolved_is_refused_at_its_field(
    cast: Cast, version: ModelVersion, value: str, words: str
) -> None:
    with pytest.raises(InvalidParameterValue) as refused:
        create(cast, version, DB_PASSWORD=value)

    assert words in refusal(refused)


@pytest.mark.parametrize("value", ["x{{secrets/db/password}}", "{{db/password}}", "{{}}", "plain"])
def test_anything_else_is_plain_text(cast: Cast, version: ModelVersion, value: str) -> None:
    assert resolve_all({"A": value}, cast.stranger.user).variables == {"A": value}
    create(cast, version, A=value)


def test_the_form_says_it_at_the_variables(cast: Cast, version: ModelVersion) -> None:
    sent = with_fields(
        {
            "entity-0-model": version.model.name,
            "entity-0-workload_type": "CPU",
            "entity-0-env-0-name": "DB_PASSWORD",
            "entity-0-env-0-value": REFERENCE,
        }
    )

    answer = browser(cast.stranger).post(reverse("endpoint-create"), sent)

    assert answer.status_code == 400
    assert "there is no secret scope “db”, or stranger has no READ" in answer.content.decode()


def test_a_manager_cannot_bring_in_the_creator_s_secrets(cast: Cast, version: ModelVersion) -> None:
    endpoint = create(cast, version, DB_PASSWORD=REFERENCE)
    endpoint.deployments.all().delete()
    EndpointPermission.objects.create(endpoint=endpoint, user=cast.viewer.user, level="CAN_MANAGE")
    services.create_scope(cast.manager.user, "private")
    services.put_secret(cast.manager.user, "private", "key", b"value")

    with pytest.raises(InvalidParameterValue) as refused:
        endpoints.update_config(
            cast.viewer.user,
            endpoint,
            [entity(version, DB_PASSWORD=REFERENCE, OTHER="{{secrets/private/key}}")],
        )
    assert "OTHER: there is no secret scope “private”, or viewer" in refusal(refused)

    endpoints.update_config(cast.viewer.user, endpoint, [entity(version, DB_PASSWORD=REFERENCE)])


# ---------------------------------------------------------------- at a deployment


def decided(endpoint: Endpoint) -> BackendDecision:
    deployment = endpoint.deployments.get()
    return BackendDecisionFactory(
        deployment=deployment, entity=deployment.config.entities.get(), standard=True
    )


@pytest.mark.parametrize("step", [start.prepare, start.launch_replicas])
@pytest.mark.parametrize("loss", ["key", "scope", "permission"])
def test_a_secret_that_is_gone_by_then_fails_the_deployment_with_the_reason(
    cast: Cast, version: ModelVersion, step: Any, loss: str
) -> None:
    endpoint = create(cast, version, DB_PASSWORD=REFERENCE)
    decision = decided(endpoint)
    if loss == "key":
        services.delete_secret(cast.admin.user, "db", "password")
    elif loss == "scope":
        services.delete_scope(cast.admin.user, "db")
    else:
        services.delete_acl(cast.admin.user, "db", "manager")

    with pytest.raises(StepFailed) as failed:
        step(decision.deployment)

    assert failed.value.code == "SECRET_UNAVAILABLE"
    assert failed.value.entity == decision.entity
    assert failed.value.message.startswith("main cannot be started. Environment variable DB_PASS")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\xff\xfe", "is binary"),
        (b"a\0b", "is binary"),
        (b"x" * (MAX_VARIABLE_BYTES + 1), "bytes; an environment variable takes"),
    ],
)
def test_a_value_that_no_variable_can_hold_is_refused(
    cast: Cast, version: ModelVersion, value: bytes, words: str
) -> None:
    services.put_secret(cast.admin.user, "db", "odd", value)

    with pytest.raises(SecretUnavailable, match=words):
        resolve_all({"A": "{{secrets/db/odd}}"}, cast.manager.user)


def test_a_lost_key_of_the_server_is_said(cast: Cast, settings: Any) -> None:
    settings.SECRET_KEY = "changed"

    with pytest.raises(SecretUnavailable, match="cannot be decrypted"):
        resolve_all({"A": REFERENCE}, cast.manager.user)


def test_only_references_count_as_secret(cast: Cast) -> None:
    found = resolve_all({"A": REFERENCE, "B": "plain"}, cast.manager.user)

    assert found.variables == {"A": VALUE, "B": "plain"}
    assert found.secret_names == ("A",)
    assert json.dumps(found.secret_names) == '["A"]'
