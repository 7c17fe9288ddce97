"""Rows for tests, with traits for states, and the fixed cast."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import cache
from typing import Any

import factory
import numpy as np
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group
from django.utils import timezone

from portal.accounts.models import ADMINS, User
from portal.accounts.services import create_token
from portal.endpoints.models import (
    BackendDecision,
    Deployment,
    DeploymentStep,
    Endpoint,
    EndpointConfig,
    EndpointPermission,
    Replica,
    ServedEntity,
)
from portal.endpoints.models import Profile as ProfileRow
from portal.endpoints.runtime import evidence_to_json
from portal.endpoints.states import (
    ConfigUpdate,
    DeploymentState,
    EntityState,
    PermissionLevel,
    Ready,
    ReplicaState,
    StepName,
    StepState,
)
from portal.registry.models import Environment, ModelAlias, ModelVersion, RegisteredModel
from portal.registry.states import EnvironmentState, ExpressState, VersionStatus
from serving.artifacts.environments import MARKER
from serving.eligibility import ReasonCode
from serving.spec import Backend, Batching, Evidence, EvidenceKind, to_json
from serving.tuning.profile import ProbeResult, Profile, SweepStep, Trial
from tests.support.model_environment import make_environment, save_model

PASSWORD = "correct horse"


@cache
def _hashed(password: str, hasher: str) -> str:
    return make_password(password)


def hashed(password: str) -> str:
    """The password's hash by the hasher in force; made once, since hashing is slow by design."""
    return _hashed(password, settings.PASSWORD_HASHERS[0])


class UserFactory(factory.django.DjangoModelFactory[User]):
    class Meta:
        model = User
        skip_postgeneration_save = True

    class Params:
        admin = False

    username = factory.Sequence(lambda n: f"user{n}")
    email = factory.LazyAttribute(lambda user: f"{user.username}@example.com")
    password = factory.LazyFunction(lambda: hashed(PASSWORD))

    @factory.post_generation
    def groups(self: Any, create: bool, names: Any, **_: Any) -> None:
        for name in names or ():
            self.groups.add(Group.objects.get_or_create(name=name)[0])


class AdminFactory(UserFactory):
    @factory.post_generation
    def groups(self: Any, create: bool, names: Any, **_: Any) -> None:
        for name in {*(names or ()), ADMINS}:
            self.groups.add(Group.objects.get_or_create(name=name)[0])


class RegisteredModelFactory(factory.django.DjangoModelFactory[RegisteredModel]):
    class Meta:
        model = RegisteredModel

    name = factory.Sequence(lambda n: f"main.default.model{n}")
    owner = factory.SubFactory(UserFactory)
    last_version = 1


class EnvironmentFactory(factory.django.DjangoModelFactory[Environment]):
    class Meta:
        model = Environment
        django_get_or_create = ["content_hash"]

    content_hash = factory.Sequence(lambda n: f"{n:064x}")
    state = EnvironmentState.READY
    python_version = "3.11"


class ModelVersionFactory(factory.django.DjangoModelFactory[ModelVersion]):
    """A complete version; `packed` brought its environment, `staged` is express."""

    class Meta:
        model = ModelVersion

    class Params:
        packed = factory.Trait(is_packed=True, databricks_runtime="client.5-gpu")
        staging = factory.Trait(packed=True, express_state=ExpressState.STAGING)
        staged = factory.Trait(
            packed=True,
            express_state=ExpressState.STAGED,
            environment=factory.SubFactory(EnvironmentFactory),
        )
        staging_failed = factory.Trait(
            packed=True,
            express_state=ExpressState.FAILED,
            express_reason_code="UNSAFE_TAR",
            express_message="The tar holds a device.",
        )
        uploading = factory.Trait(status=VersionStatus.PENDING_REGISTRATION)

    model = factory.SubFactory(RegisteredModelFactory)
    version = 1
    creator = factory.SelfAttribute("model.owner")
    status = VersionStatus.READY
    python_version = "3.11.7"


class ModelAliasFactory(factory.django.DjangoModelFactory[ModelAlias]):
    class Meta:
        model = ModelAlias

    model_version = factory.SubFactory(ModelVersionFactory)
    model = factory.SelfAttribute("model_version.model")
    alias = "champion"


class EndpointFactory(factory.django.DjangoModelFactory[Endpoint]):
    class Meta:
        model = Endpoint

    public_id = factory.Sequence(lambda n: f"{n:032x}")
    name = factory.Sequence(lambda n: f"endpoint{n}")
    creator = factory.SubFactory(UserFactory)
    changed_by = factory.SelfAttribute("creator")


class EndpointConfigFactory(factory.django.DjangoModelFactory[EndpointConfig]):
    class Meta:
        model = EndpointConfig

    endpoint = factory.SubFactory(EndpointFactory)
    version = 1
    creator = factory.SelfAttribute("endpoint.creator")


class ServedEntityFactory(factory.django.DjangoModelFactory[ServedEntity]):
    class Meta:
        model = ServedEntity

    class Params:
        gpu = factory.Trait(workload_type="GPU_SMALL")
        optimized = factory.Trait(gpu=True, throughput_optimized=True)
        ready = factory.Trait(state=EntityState.DEPLOYMENT_READY)

    config = factory.SubFactory(EndpointConfigFactory)
    position = 0
    name = "main"
    model_version = factory.SubFactory(ModelVersionFactory, staged=True)
    entity_name = factory.SelfAttribute("model_version.model.name")
    entity_version = factory.LazyAttribute(lambda entity: str(entity.model_version.version))
    workload_size = "Small"
    creator = factory.SelfAttribute("config.creator")


class DeploymentFactory(factory.django.DjangoModelFactory[Deployment]):
    class Meta:
        model = Deployment
        skip_postgeneration_save = True

    class Params:
        running = factory.Trait(
            state=DeploymentState.RUNNING, started_at=factory.LazyFunction(timezone.now)
        )
        succeeded = factory.Trait(
            state=DeploymentState.SUCCEEDED,
            started_at=factory.LazyFunction(timezone.now),
            ended_at=factory.LazyFunction(timezone.now),
        )

    config = factory.SubFactory(EndpointConfigFactory)
    endpoint = factory.SelfAttribute("config.endpoint")

    @factory.post_generation
    def steps(self: Any, create: bool, extracted: Any, **_: Any) -> None:
        done = self.state == DeploymentState.SUCCEEDED
        for position, name in enumerate(StepName):
            DeploymentStep.objects.create(
                deployment=self,
                position=position,
                name=name,
                state=StepState.DONE if done else StepState.WAITING,
            )


def measured_profile() -> dict[str, Any]:
    """A profile of a model that gains from batching and from a second instance."""
    sizes = [(1, 4.0), (2, 4.1), (4, 4.4), (8, 5.0), (16, 6.2), (32, 8.4), (64, 15.8)]
    tried = [(1, 2_840.0, 22.0, False), (2, 4_740.0, 13.0, True)]
    profile = Profile(
        steps=tuple(
            SweepStep(rows=rows, runs=40, latency_ms=ms, rows_per_s=rows * 1000 / ms)
            for rows, ms in sizes
        ),
        trials=tuple(
            Trial(
                instance_count=instances,
                threads_per_instance=1,
                max_batch_size=32,
                max_queue_delay_microseconds=0,
                callers=64,
                requests_per_s=rate,
                p50_ms=p50_ms,
                p99_ms=2 * p50_ms,
                is_chosen=is_chosen,
            )
            for instances, rate, p50_ms, is_chosen in tried
        ),
        probe=ProbeResult(rows_checked=8, is_row_independent=True, speedup_of_8=6.4),
        knee_rows=32,
        memory_bound_rows=None,
        stopped_because="64 rows are the most that was tried.",
        chosen=Batching(max_batch_size=32, instance_count=2),
        reasons={"max_batch_size": "32 rows in a call gave 3,810 rows/s, 94% of the best."},
        device="cpu-emulation:2 cores",
        duration_s=21.5,
        measured_at=1_700_000_000.0,
    )
    found: dict[str, Any] = json.loads(to_json(profile))
    return found


class ProfileFactory(factory.django.DjangoModelFactory[ProfileRow]):
    class Meta:
        model = ProfileRow
        django_get_or_create = ("model_version", "device_key")

    model_version = factory.SubFactory(ModelVersionFactory, staged=True)
    device_key = "cpu-emulation:2 cores"
    data = factory.LazyFunction(measured_profile)


class BackendDecisionFactory(factory.django.DjangoModelFactory[BackendDecision]):
    class Meta:
        model = BackendDecision

    class Params:
        standard = factory.Trait(
            backend=Backend.STANDARD,
            reason_code=ReasonCode.NOT_REQUESTED,
            message="Throughput optimized is off.",
        )
        profiled = factory.Trait(
            profile=factory.SubFactory(
                ProfileFactory, model_version=factory.SelfAttribute("..entity.model_version")
            ),
            batching={
                "max_batch_size": 32,
                "instance_count": 2,
                "max_queue_delay_microseconds": 0,
                "preferred_batch_size": [],
                "max_queue_size": 256,
                "threads_per_instance": 1,
                "sources": {
                    "max_batch_size": "profile",
                    "instance_count": "profile",
                    "max_queue_size": "override",
                },
            },
            batching_reasons={
                "max_batch_size": "32 rows in a call gave 3,810 rows/s, 94% of the best.",
                "instance_count": "2 instances answered 67 % more requests than 1.",
                "max_queue_size": "Set on the served entity.",
            },
        )

    entity = factory.SubFactory(ServedEntityFactory, optimized=True)
    deployment = factory.SubFactory(
        DeploymentFactory, succeeded=True, config=factory.SelfAttribute("..entity.config")
    )
    backend = Backend.TRITON
    reason_code = ReasonCode.ELIGIBLE
    message = "Every rule for throughput optimization passes."


def all_evidence() -> list[dict[str, object]]:
    """What a replica on Triton shows once it is ready."""
    return [
        evidence_to_json(Evidence(kind=kind, text=f"{kind} seen", line=line, at=1_700_000_000.0))
        for line, kind in enumerate(EvidenceKind, start=1)
    ]


class ReplicaFactory(factory.django.DjangoModelFactory[Replica]):
    class Meta:
        model = Replica

    class Params:
        ready = factory.Trait(
            state=ReplicaState.READY,
            address="127.0.0.1:9",
            launched_at=factory.LazyFunction(timezone.now),
            ready_at=factory.LazyFunction(timezone.now),
        )
        proven = factory.Trait(ready=True, evidence=factory.LazyFunction(all_evidence))

    public_id = factory.Sequence(lambda n: f"r{n:04d}")
    entity = factory.SubFactory(ServedEntityFactory, optimized=True)
    deployment = factory.SubFactory(
        DeploymentFactory, succeeded=True, config=factory.SelfAttribute("..entity.config")
    )
    backend = Backend.TRITON
    device = "cpu-emulation"
    seen_at = factory.LazyFunction(timezone.now)


def live_endpoint(**entity: Any) -> Endpoint:
    """An endpoint that serves one throughput-optimized entity from one proven replica.

    `entity` changes the served entity; with `throughput_optimized=False` it runs on the
    standard backend.
    """
    creator = entity.pop("creator", None) or UserFactory()
    name = entity.pop("endpoint_name", None)
    endpoint = EndpointFactory(
        creator=creator,
        ready=Ready.READY,
        config_update=ConfigUpdate.NOT_UPDATING,
        last_config_version=1,
        **({"name": name} if name else {}),
    )
    config = EndpointConfigFactory(endpoint=endpoint)
    served = ServedEntityFactory(**{"config": config, "optimized": True, "ready": True, **entity})
    deployment = DeploymentFactory(config=config, succeeded=True)
    on_triton = served.throughput_optimized
    BackendDecisionFactory(
        deployment=deployment, entity=served, standard=not on_triton, profiled=on_triton
    )
    ReplicaFactory(
        deployment=deployment,
        entity=served,
        backend=Backend.TRITON if on_triton else Backend.STANDARD,
        ready=True,
        evidence=all_evidence() if on_triton else [],
    )
    endpoint.active_config = config
    endpoint.save(update_fields=["active_config"])
    return endpoint


@dataclass(frozen=True)
class Person:
    """One of the cast: the user and a token of theirs."""

    user: User
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """For Django's test client and `requests` alike."""
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True)
class Cast:
    """The fixed cast: who may do what on the cast's endpoints."""

    admin: Person
    manager: Person
    querier: Person
    viewer: Person
    stranger: Person

    def share(self, endpoint: Endpoint) -> Endpoint:
        """Give each of the cast their level on `endpoint`."""
        levels = {
            self.manager: PermissionLevel.CAN_MANAGE,
            self.querier: PermissionLevel.CAN_QUERY,
            self.viewer: PermissionLevel.CAN_VIEW,
        }
        for person, level in levels.items():
            EndpointPermission.objects.create(endpoint=endpoint, user=person.user, level=level)
        return endpoint


def make_cast() -> Cast:
    """The fixed cast, each with a token."""

    def person(user: User) -> Person:
        return Person(user=user, token=create_token(user, comment="tests")[1])

    return Cast(
        admin=person(AdminFactory(username="admin")),
        manager=person(UserFactory(username="manager")),
        querier=person(UserFactory(username="querier")),
        viewer=person(UserFactory(username="viewer")),
        stranger=person(UserFactory(username="stranger")),
    )


def stored_environment() -> Environment:
    """A real environment in the store, with its row; made once in a test run."""
    row = EnvironmentFactory(content_hash="e" * 64)
    if not row.directory.exists():
        found = make_environment(row.directory)
        facts = {
            "python_version": found.python_version,
            "base_prefix": str(found.base_prefix),
            "libpython": str(found.libpython or ""),
        }
        (row.directory / MARKER).write_text(json.dumps(facts))
    return row


def stored_version(
    python_model: object, input_example: object | None, **fields: Any
) -> ModelVersion:
    """A staged version whose MLflow model and environment really are there."""
    version = ModelVersionFactory(staged=True, environment=stored_environment(), **fields)
    shutil.rmtree(version.model_directory, ignore_errors=True)
    version.signature = save_model(version.model_directory, python_model, input_example)
    if isinstance(input_example, np.ndarray):
        version.input_example = {"inputs": input_example.tolist()}
    version.save(update_fields=["signature", "input_example"])
    return version
