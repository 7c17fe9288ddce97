"""The pages of models and versions."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.accounts.models import User
from portal.registry import snippets
from portal.registry.models import ModelVersion, ModelVersionTag, RegisteredModelTag
from portal.registry.signatures import SignatureRow, signature_rows
from portal.registry.states import ExpressState
from tests.support.factories import (
    EndpointConfigFactory,
    EndpointFactory,
    ModelAliasFactory,
    ModelVersionFactory,
    RegisteredModelFactory,
    ServedEntityFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db

SIGNATURE = {
    "inputs": json.dumps(
        [{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 3, 224, 224]}}]
    ),
    "outputs": json.dumps([{"type": "double", "name": "score", "required": True}]),
    "params": json.dumps([{"name": "threshold", "default": 0.5, "shape": None, "type": "double"}]),
}


@pytest.fixture
def user() -> User:
    return UserFactory(username="maria")


@pytest.fixture
def page(client: Client, user: User) -> Client:
    client.force_login(user)
    return client


def version_page(page: Client, version: ModelVersion) -> str:
    url = reverse("model-version", args=[version.model.name, version.version])
    return page.get(url).content.decode()


# ---------------------------------------------------------------- the list


def test_the_empty_list_shows_how_to_register_here(page: Client) -> None:
    text = page.get(reverse("models"), headers={"Host": "shoal.example:8000"}).content.decode()

    assert "No models yet" in text
    assert "export DATABRICKS_HOST=http://shoal.example:8000" in text
    assert "env_pack=&quot;databricks_model_serving&quot;" in text
    assert "SHOAL_TOKEN" in text


def test_the_list_shows_the_newest_version_and_its_state(page: Client) -> None:
    model = RegisteredModelFactory(name="main.vision.detector")
    ModelVersionFactory(model=model, version=1, staged=True)
    ModelVersionFactory(model=model, version=2, uploading=True)
    RegisteredModelFactory(name="main.vision.empty")

    text = page.get(reverse("models")).content.decode()

    assert "main.vision.detector" in text
    assert reverse("model-version", args=["main.vision.detector", 2]) in text
    assert "Uploading" in text
    assert "main.vision.empty" in text


def test_the_list_is_searched_by_name(page: Client) -> None:
    RegisteredModelFactory(name="main.vision.detector")
    RegisteredModelFactory(name="main.nlp.bert")

    text = page.get(reverse("models"), {"search": "BERT"}).content.decode()
    assert "main.nlp.bert" in text
    assert "main.vision.detector" not in text

    text = page.get(reverse("models"), {"search": "<b>zzz"}).content.decode()
    assert "No name holds “&lt;b&gt;zzz”" in text
    assert "Clear the search" in text


@pytest.mark.parametrize("number", ["0", "999", "x", "-1"])
def test_the_list_is_paged(page: Client, number: str) -> None:
    RegisteredModelFactory.create_batch(30)

    text = page.get(reverse("models")).content.decode()
    assert "1 to 25 of 30 models" in text
    assert 'rel="next" href="?page=2"' in text

    assert page.get(reverse("models"), {"page": number}).status_code == 200


def test_the_list_takes_the_same_few_queries_however_long(
    page: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(20):
        ModelAliasFactory(model_version=ModelVersionFactory(staged=True))

    with django_assert_max_num_queries(7):
        assert page.get(reverse("models")).status_code == 200


# ---------------------------------------------------------------- a model


def test_a_model_shows_versions_aliases_tags_owner(
    page: Client, django_assert_max_num_queries: Any
) -> None:
    model = RegisteredModelFactory(
        name="main.vision.detector", description="Finds <scratches>.", owner__username="jo"
    )
    RegisteredModelTag.objects.create(model=model, key="team", value="vision")
    for number in range(1, 13):
        version = ModelVersionFactory(model=model, version=number, size_bytes=2**20 * number)
    ModelAliasFactory(model_version=version)

    with django_assert_max_num_queries(11):
        text = page.get(reverse("model", args=[model.name])).content.decode()

    assert "Finds &lt;scratches&gt;." in text
    assert "team=vision" in text
    assert "@champion → 12" in text
    assert "jo" in text
    assert text.index("Version 12") < text.index("Version 2<")
    assert "12 MiB" in text


def test_an_unknown_model_and_version_are_404(page: Client) -> None:
    version = ModelVersionFactory()

    assert page.get(reverse("model", args=["main.default.nope"])).status_code == 404
    answer = page.get(reverse("model-version", args=[version.model.name, 99]))
    assert answer.status_code == 404
    assert b"There is no version 99 of" in answer.content


# ---------------------------------------------------------------- a version


def test_a_version_shows_what_it_takes_and_needs(
    page: Client, django_assert_max_num_queries: Any
) -> None:
    version = ModelVersionFactory(
        staged=True,
        signature=SIGNATURE,
        input_example={"inputs": [[1.5, 2.5]]},
        size_bytes=98_566_144,
        mlflow_version="3.17.2",
        requirements="torch==2.13.0",
        run_id="abc123",
    )
    ModelVersionTag.objects.create(model_version=version, key="val_map", value="0.871")
    ModelAliasFactory(model_version=version)

    with django_assert_max_num_queries(8):
        text = version_page(page, version)

    for fact in ("float32", "(any, 3, 224, 224)", "score", "threshold", "default 0.5"):
        assert fact in text
    for fact in ("[1.5, 2.5]", "94 MiB", "3.11.7", "3.17.2", "torch==2.13.0", "client.5-gpu"):
        assert fact in text
    for fact in ("val_map=0.871", "@champion", "abc123", "Express"):
        assert fact in text


def test_a_ready_version_can_be_served_from_its_page(page: Client) -> None:
    version = ModelVersionFactory(staged=True)

    text = version_page(page, version)

    url = f"{reverse('endpoint-create')}?model={version.model.name}&amp;version={version.version}"
    assert url in text


def test_a_version_that_is_being_uploaded_cannot_be_served_and_is_watched(page: Client) -> None:
    version = ModelVersionFactory(uploading=True)

    text = version_page(page, version)

    assert "Serve this version" not in text
    assert 'hx-trigger="every 2s"' in text


def test_a_version_without_packed_environment_shows_how_to_pack_it(page: Client) -> None:
    version = ModelVersionFactory()

    text = version_page(page, version)

    assert "Registered without its packed environment" in text
    assert "export DATABRICKS_ENV_VERSION=5" in text
    assert f"&quot;{version.model.name}&quot;, env_pack=" in text
    assert "hx-trigger" not in text


def test_failed_staging_shows_its_reason_and_the_cure(page: Client) -> None:
    version = ModelVersionFactory(staging_failed=True)

    text = version_page(page, version)

    assert "Staging failed" in text
    assert "The tar holds a device." in text
    assert "UNSAFE_TAR" in text
    assert "<details open>" in text


def test_the_live_region_asks_until_staging_has_settled(page: Client) -> None:
    version = ModelVersionFactory(staging=True, express_message="Unpacking: 312 of 634 MiB")
    url = reverse("model-version-status", args=[version.model.name, version.version])
    assert f'hx-get="{url}"' in version_page(page, version)

    text = page.get(url).content.decode()
    assert "Unpacking: 312 of 634 MiB" in text
    assert 'hx-trigger="every 2s"' in text
    assert "<html" not in text

    version.express_state = ExpressState.STAGED
    version.express_message = ""
    version.save()
    text = page.get(url).content.decode()
    assert "hx-trigger" not in text
    assert "chip-good" in text


def test_a_build_from_requirements_is_watched_with_its_progress(page: Client) -> None:
    version = ModelVersionFactory(
        build_beat_at=timezone.now(), build_message="Installing torch: 41 s"
    )

    text = version_page(page, version)
    assert "Installing torch: 41 s" in text
    assert "Build log" in text
    assert 'hx-trigger="every 2s"' in text

    version.build_beat_at = timezone.now() - timedelta(hours=1)
    version.save()
    assert "hx-trigger" not in version_page(page, version)


def test_a_failed_build_shows_its_reason(page: Client) -> None:
    version = ModelVersionFactory(
        build_reason_code="BUILD_FAILED", build_message="pip found no torch==9."
    )

    text = version_page(page, version)

    assert "pip found no torch==9." in text
    assert "BUILD_FAILED" in text
    assert "chip-bad" not in text


def test_a_failed_staging_is_started_again_by_who_may_write(page: Client, user: User) -> None:
    version = ModelVersionFactory(staging_failed=True, model__owner=user)
    url = reverse("model-version-stage", args=[version.model.name, version.version])
    assert "Stage again" in version_page(page, version)

    answer = page.post(url)

    assert answer.status_code == 302
    version.refresh_from_db()
    assert version.express_state == ExpressState.STAGING
    assert page.post(url).status_code == 302
    assert page.get(url).status_code == 405


def test_others_cannot_start_a_staging(page: Client) -> None:
    version = ModelVersionFactory(staging_failed=True)
    url = reverse("model-version-stage", args=[version.model.name, version.version])

    assert "Stage again" not in version_page(page, version)
    assert page.post(url).status_code == 403
    version.refresh_from_db()
    assert version.express_state == ExpressState.FAILED


def test_a_version_without_its_environment_cannot_be_staged(page: Client, user: User) -> None:
    version = ModelVersionFactory(model__owner=user)
    url = reverse("model-version-stage", args=[version.model.name, version.version])

    answer = page.post(url, follow=True)

    assert b"was registered without its environment" in answer.content


def test_a_version_packed_on_a_cpu_runtime_is_flagged(page: Client) -> None:
    version = ModelVersionFactory(staged=True, databricks_runtime="client.5")

    assert "CPU packages" in version_page(page, version)


def test_a_custom_entrypoint_is_shown_with_what_it_means(page: Client) -> None:
    version = ModelVersionFactory(staged=True, entrypoint="python serve.py")

    text = version_page(page, version)

    assert "python serve.py" in text
    assert "cannot be throughput optimized" in text


def test_a_version_names_the_endpoints_that_the_user_may_see(page: Client, user: User) -> None:
    version = ModelVersionFactory(staged=True)
    for name, creator in (("mine", user), ("theirs", UserFactory())):
        endpoint = EndpointFactory(name=name, creator=creator)
        config = EndpointConfigFactory(endpoint=endpoint)
        ServedEntityFactory(config=config, model_version=version)
        endpoint.active_config = config
        endpoint.pending_config = config
        endpoint.save()

    text = version_page(page, version)

    assert text.count(f'href="{reverse("endpoint", args=["mine"])}"') == 1
    assert "theirs" not in text


# ---------------------------------------------------------------- snippets


@pytest.mark.parametrize(
    "code", [snippets.register_first_model(), snippets.register_with_environment("main.default.m")]
)
def test_the_python_that_is_shown_can_be_read_by_python(code: str) -> None:
    ast.parse(code)


def test_the_shell_lines_take_the_token_from_the_environment() -> None:
    lines = snippets.client_environment("http://shoal.example:8000")
    shown = subprocess.run(
        ["bash", "-euc", f"{lines}\nenv"],
        env={"PATH": os.environ["PATH"], "SHOAL_TOKEN": "shoal-x"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    assert "DATABRICKS_HOST=http://shoal.example:8000" in shown
    assert "DATABRICKS_TOKEN=shoal-x" in shown
    assert "DATABRICKS_ENV_VERSION=5" in shown
    assert "DATABRICKS_ACCELERATOR=GPU" in shown


# ---------------------------------------------------------------- signatures


def test_a_signature_becomes_rows() -> None:
    columns = [
        {"type": "string", "name": "text", "required": True},
        {"type": "array", "items": {"type": "double"}, "name": "weights", "required": False},
        {"type": "object", "properties": {"a": {"type": "long"}}, "name": "extra"},
        {"type": "map", "values": {"type": "string"}, "name": "labels"},
    ]

    rows = signature_rows({"inputs": json.dumps(columns), "outputs": None, "params": None})

    assert [(row.name, row.dtype, row.note) for row in rows] == [
        ("text", "string", ""),
        ("weights", "list of double", "optional"),
        ("extra", "object {a: long}", ""),
        ("labels", "map to string", ""),
    ]
    assert signature_rows(SIGNATURE)[0] == SignatureRow(
        part="Input", name="", dtype="float32", shape="(any, 3, 224, 224)"
    )


@pytest.mark.parametrize(
    "signature", [None, {}, {"inputs": "no json"}, {"inputs": "5"}, {"inputs": ["x"]}]
)
def test_a_signature_that_cannot_be_read_has_no_rows(signature: Any) -> None:
    assert signature_rows(signature) == []
