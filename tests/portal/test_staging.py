"""Staging: a packed version becomes express, or says why not; interrupted work is done again."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.accounts.services import create_token
from portal.registry import services, tasks
from portal.registry.models import Environment, ModelVersion
from portal.registry.states import ExpressState
from portal.rest import InvalidState
from tests.support.archives import packed_environment, packed_model
from tests.support.factories import RegisteredModelFactory, UserFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_stores")]


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("packed")
    return packed_model(folder), packed_environment(folder)


@pytest.fixture
def packed(tars: tuple[Path, Path]) -> ModelVersion:
    return new_version(tars)


def new_version(tars: tuple[Path, Path]) -> ModelVersion:
    owner = UserFactory()
    model = RegisteredModelFactory(owner=owner)
    version = ModelVersion.objects.create(
        model=model, version=1, creator=owner, status="READY", is_packed=True
    )
    folder = version.files_directory / "_databricks"
    folder.mkdir(parents=True)
    for tar in tars:
        shutil.copy(tar, folder / tar.name)
    return version


def again(version: ModelVersion) -> ModelVersion:
    return ModelVersion.objects.get(pk=version.pk)


def stage(version: ModelVersion) -> ModelVersion:
    services.request_staging(again(version))
    tasks.stage_version(version.pk)
    return again(version)


def age(version: ModelVersion, seconds: int) -> None:
    ModelVersion.objects.filter(pk=version.pk).update(
        staging_beat_at=timezone.now() - timedelta(seconds=seconds)
    )


def test_the_call_starts_the_task_and_answers_at_once(
    packed: ModelVersion, valkey: Any, django_capture_on_commit_callbacks: Any
) -> None:
    client = Client(headers={"Authorization": f"Bearer {create_token(packed.creator)[1]}"})
    asked = {"model_name": packed.model.name, "model_version": "1"}
    for _ in range(2):
        with django_capture_on_commit_callbacks(execute=True):
            response = client.post(
                "/api/2.0/serving-endpoints:stageDeployment", asked, "application/json"
            )
        assert (response.status_code, response.json()) == (200, {})

    assert again(packed).express_state == ExpressState.STAGING
    assert valkey.llen("default") == 1


def test_only_its_people_stage_a_version(packed: ModelVersion) -> None:
    client = Client(headers={"Authorization": f"Bearer {create_token(UserFactory())[1]}"})
    asked = {"model_name": packed.model.name, "model_version": "1"}

    response = client.post("/api/2.0/serving-endpoints:stageDeployment", asked, "application/json")

    assert (response.status_code, response.json()["error_code"]) == (403, "PERMISSION_DENIED")


def test_a_packed_version_becomes_express(packed: ModelVersion) -> None:
    version = stage(packed)

    assert version.express_state == ExpressState.STAGED
    assert "Python 3." in version.express_message
    assert (version.model_directory / "artifacts" / "weights.bin").stat().st_size == 100_000
    assert version.environment is not None
    assert version.environment.state == "READY"
    assert version.environment.size_bytes > 0
    ready = services.ensure_prepared(version)
    assert ready.state == "ready"
    assert ready.environment is not None
    assert ready.environment.python.exists()
    assert ready.model_directory == version.model_directory


def test_two_versions_share_one_environment(tars: tuple[Path, Path]) -> None:
    first, second = stage(new_version(tars)), stage(new_version(tars))

    assert first.environment == second.environment
    assert Environment.objects.count() == 1
    assert first.model_directory != second.model_directory


def test_a_task_that_runs_twice_or_late_does_no_harm(packed: ModelVersion) -> None:
    version = stage(packed)
    tasks.stage_version(version.pk)
    tasks.stage_version(10**9)

    assert again(version).express_state == ExpressState.STAGED


def test_a_refusal_is_kept_with_its_reason_and_can_be_tried_again(packed: ModelVersion) -> None:
    tar = packed.files_directory / "_databricks" / "model_environment.tar"
    content = tar.read_bytes()
    tar.write_bytes(content[:10_000])
    version = stage(packed)

    assert version.express_state == ExpressState.FAILED
    assert version.express_reason_code == "INCOMPLETE"
    assert "cut off" in version.express_message

    tar.write_bytes(content)
    assert stage(packed).express_state == ExpressState.STAGED


def test_an_unpacked_environment_that_vanished_is_staged_again(packed: ModelVersion) -> None:
    version = stage(packed)
    assert version.environment is not None
    shutil.rmtree(version.environment.directory)

    assert services.ensure_prepared(version).state == "working"
    assert again(version).express_state == ExpressState.STAGING
    tasks.stage_version(version.pk)
    assert services.ensure_prepared(version).state == "ready"


def test_a_deleted_version_ends_its_staging(packed: ModelVersion) -> None:
    services.request_staging(packed)
    ModelVersion.objects.filter(pk=packed.pk).update(express_state=ExpressState.FAILED)

    tasks.stage_version(packed.pk)

    assert not packed.model_directory.exists()


def test_what_cannot_be_staged_is_refused(packed: ModelVersion) -> None:
    packed.is_packed = False
    with pytest.raises(InvalidState, match="env_pack"):
        services.request_staging(packed)
    packed.status = "PENDING_REGISTRATION"
    with pytest.raises(InvalidState, match="READY"):
        services.request_staging(packed)


def test_an_impossible_change_of_state_is_refused(packed: ModelVersion) -> None:
    with pytest.raises(ValueError, match="cannot become"):
        services.move_express(packed, ExpressState.STAGED)


def test_of_two_changes_of_state_one_wins(packed: ModelVersion) -> None:
    mine, theirs = again(packed), again(packed)

    assert services.move_express(theirs, ExpressState.STAGING)
    assert not services.move_express(mine, ExpressState.STAGING)


# ---------------------------------------------------------------- the reconciler


def test_a_silent_staging_is_sent_again_and_a_live_one_is_not(
    packed: ModelVersion, valkey: Any, django_capture_on_commit_callbacks: Any
) -> None:
    services.request_staging(packed)
    with django_capture_on_commit_callbacks(execute=True):
        tasks.reconcile()
    assert valkey.llen("default") == 0

    age(packed, 60)
    with django_capture_on_commit_callbacks(execute=True):
        tasks.reconcile()
        tasks.reconcile()
    assert valkey.llen("default") == 1
    assert again(packed).staging_attempts == 2


def test_a_staging_that_is_always_interrupted_fails(packed: ModelVersion) -> None:
    services.request_staging(packed)
    for _ in range(5):
        age(packed, 60)
        tasks.reconcile()

    version = again(packed)
    assert version.express_state == ExpressState.FAILED
    assert version.express_reason_code == "INTERRUPTED"


def test_uploads_that_never_ended_expire(packed: ModelVersion, settings: Any) -> None:
    ModelVersion.objects.filter(pk=packed.pk).update(status="PENDING_REGISTRATION")
    left_over = Path(settings.UPLOADS_DIR) / "put-left-over"
    left_over.parent.mkdir(parents=True, exist_ok=True)
    left_over.write_bytes(b"x")
    tasks.reconcile()
    assert again(packed).status == "PENDING_REGISTRATION"
    assert left_over.exists()

    settings.UPLOAD_EXPIRES_S = -1
    tasks.reconcile()

    assert again(packed).status == "FAILED_REGISTRATION"
    assert not packed.files_directory.exists()
    assert not left_over.exists()


def test_environments_and_models_that_nobody_uses_go_after_a_grace_time(
    packed: ModelVersion, settings: Any
) -> None:
    version = stage(packed)
    environment = version.environment
    assert environment is not None
    settings.STORE_GRACE_S = -1
    tasks.reconcile()
    assert environment.directory.exists()
    assert version.model_directory.exists()

    version.delete()
    settings.STORE_GRACE_S = 3600
    tasks.reconcile()
    assert environment.directory.exists()

    settings.STORE_GRACE_S = -1
    tasks.reconcile()
    assert not environment.directory.exists()
    assert not version.model_directory.exists()
    assert not Environment.objects.exists()


def test_what_a_replica_was_started_with_stays(packed: ModelVersion, settings: Any) -> None:
    import json

    version = stage(packed)
    model, environment = version.model_directory, version.environment
    assert environment is not None
    spec = Path(settings.REPLICAS_DIR) / "abcde" / "spec.json"
    spec.parent.mkdir(parents=True)
    directory = str(environment.directory)
    spec.write_text(
        json.dumps({"model_directory": str(model), "environment": {"directory": directory}})
    )
    settings.STORE_GRACE_S = -1
    version.delete()
    tasks.reconcile()
    assert model.exists()
    assert environment.directory.exists()

    shutil.rmtree(spec.parent)
    tasks.reconcile()
    assert not model.exists()
    assert not environment.directory.exists()
