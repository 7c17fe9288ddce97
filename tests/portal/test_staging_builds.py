"""Versions that are not express: their environment is built from the requirements, with a log."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.registry import services, tasks
from portal.registry.models import Environment, ModelVersion
from portal.registry.states import ExpressState
from tests.support.archives import wheel
from tests.support.factories import RegisteredModelFactory, UserFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_stores")]
REQUIREMENTS = "--no-index\n--find-links code\nmlflow\nnumpy\n"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def plain() -> ModelVersion:
    """A version registered without its environment; its wheels come along."""
    owner = UserFactory()
    version = ModelVersion.objects.create(
        model=RegisteredModelFactory(owner=owner),
        version=1,
        creator=owner,
        status="READY",
        python_version=f"{VERSION}.1",
        mlflow_version="1.0",
        requirements=REQUIREMENTS,
    )
    code = version.files_directory / "code"
    wheel(code, "mlflow", {"mlflow/__init__.py": "__version__ = '1.0'\n", "mlflow/pyfunc.py": ""})
    wheel(code, "numpy", {"numpy.py": ""})
    (version.files_directory / "MLmodel").write_text("flavors: {python_function: {}}\n")
    return version


def again(version: ModelVersion) -> ModelVersion:
    return ModelVersion.objects.get(pk=version.pk)


def test_an_environment_is_built_once_and_then_ready(
    plain: ModelVersion, valkey: Any, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        asked = [services.ensure_prepared(plain).state for _ in range(3)]
    assert asked == ["working"] * 3
    assert valkey.llen("builds") == 1

    tasks.build_environment(plain.pk)
    tasks.build_environment(plain.pk)

    ready = services.ensure_prepared(plain)
    assert ready.state == "ready"
    assert ready.environment is not None
    assert ready.environment.python_version == VERSION
    assert ready.model_directory is not None
    assert (ready.model_directory / "MLmodel").is_file()
    subprocess.run([ready.environment.python, "-I", "-c", "import mlflow.pyfunc"], check=True)
    assert Environment.objects.get().is_built_here
    log = services.build_log(again(plain))
    assert "Successfully installed" in log
    assert "Built from the model's requirements" in log
    assert again(plain).express_state == ExpressState.NOT_STAGED


def test_a_failed_build_says_why_and_is_tried_again_later(
    plain: ModelVersion, valkey: Any, django_capture_on_commit_callbacks: Any
) -> None:
    ModelVersion.objects.filter(pk=plain.pk).update(requirements=f"{REQUIREMENTS}no-such-thing\n")
    services.ensure_prepared(plain)
    tasks.build_environment(plain.pk)

    failed = services.ensure_prepared(plain)
    assert (failed.state, failed.reason_code) == ("failed", "ENVIRONMENT_DOES_NOT_BUILD")
    assert "requirements" in failed.message
    assert "no-such-thing" in services.build_log(again(plain))

    ModelVersion.objects.filter(pk=plain.pk).update(
        build_failed_at=timezone.now() - timedelta(minutes=5), requirements=REQUIREMENTS
    )
    with django_capture_on_commit_callbacks(execute=True):
        assert services.ensure_prepared(plain).state == "working"
    assert valkey.llen("builds") == 1
    tasks.build_environment(plain.pk)
    assert services.ensure_prepared(plain).state == "ready"


def test_a_build_that_went_silent_is_sent_again(
    plain: ModelVersion, valkey: Any, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        services.ensure_prepared(plain)
        ModelVersion.objects.filter(pk=plain.pk).update(
            build_beat_at=timezone.now() - timedelta(minutes=5)
        )
        services.ensure_prepared(plain)
        services.ensure_prepared(plain)

    assert valkey.llen("builds") == 2


def test_a_python_that_is_not_here_is_named(plain: ModelVersion) -> None:
    ModelVersion.objects.filter(pk=plain.pk).update(python_version="3.99.1")
    services.ensure_prepared(plain)
    tasks.build_environment(plain.pk)

    failed = services.ensure_prepared(plain)

    assert (failed.state, failed.reason_code) == ("failed", "PYTHON_NOT_AVAILABLE")
    assert "Python 3.99" in failed.message


def test_where_staging_failed_the_environment_is_built(plain: ModelVersion) -> None:
    ModelVersion.objects.filter(pk=plain.pk).update(
        is_packed=True,
        express_state=ExpressState.FAILED,
        express_reason_code="UNSAFE_TAR",
        express_message="no",
    )
    assert services.ensure_prepared(plain).state == "working"

    tasks.build_environment(plain.pk)

    assert services.ensure_prepared(plain).state == "ready"
    assert again(plain).express_state == ExpressState.FAILED


def test_a_version_that_is_not_ready_cannot_be_prepared(plain: ModelVersion) -> None:
    ModelVersion.objects.filter(pk=plain.pk).update(status="PENDING_REGISTRATION")

    assert services.ensure_prepared(plain).state == "failed"


def test_an_express_versions_build_log_says_that_nothing_is_built(plain: ModelVersion) -> None:
    plain.is_packed = True

    assert services.build_log(plain).startswith("Express:")
