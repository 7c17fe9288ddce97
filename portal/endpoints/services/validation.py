"""Check what a form or a call asks for against every rule, and report all problems at once.

Each problem carries the path of its field (`config.served_entities[0].name`), the same for
creation, for updates and for the form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.conf import settings

from portal.accounts.models import User
from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.models import Endpoint, EndpointConfig, ServedEntity
from portal.endpoints.services.variables import check_variables
from portal.previews import services as previews
from portal.registry import services as registry
from portal.registry.models import ModelVersion
from portal.registry.models import RegisteredModelQuerySet as Models
from portal.registry.states import VersionStatus
from portal.rest import FeatureDisabled, InvalidParameterValue, ResourceDoesNotExist
from serving.eligibility import Eligibility, ReasonCode, check
from serving.workloads import WORKLOAD_SIZES, WORKLOAD_TYPES

NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")
RESERVED_PREFIX = "databricks-"
RESERVED_NAMES = {"new"}  # the create form's place among the endpoints' pages
CONCURRENCY_STEP = 4

BATCHING_BOUNDS: dict[str, tuple[int, int]] = {
    "max_batch_size": (1, 4096),
    "max_queue_delay_microseconds": (0, 10_000_000),
    "instance_count": (1, 16),
    "max_queue_size": (1, 100_000),
    "threads_per_instance": (1, 256),
}
MAX_PREFERRED_SIZES = 16


@dataclass
class Problems:
    """What is wrong, by field; empty when all is well."""

    found: list[dict[str, str]] = field(default_factory=list)
    of_preview: int = 0

    def add(self, path: str, message: str) -> None:
        """Remember a problem."""
        self.found.append({"field": path, "message": message})

    def raise_if_any(self) -> None:
        """Refuse with every problem.

        Raises:
            FeatureDisabled: Nothing is wrong but that the preview is off.
            InvalidParameterValue: Anything else is wrong.
        """
        if not self.found:
            return
        text = " ".join(f"{problem['field']}: {problem['message']}" for problem in self.found)
        if self.of_preview == len(self.found):
            raise FeatureDisabled(text, details=self.found)
        raise InvalidParameterValue(text, details=self.found)


def eligibility_of(version: ModelVersion | None, workload_type: str) -> Eligibility:
    """Whether `version` on `workload_type` may be throughput optimized now, rule by rule."""
    return check(
        preview_enabled=previews.is_enabled(),
        workload_type=workload_type,
        entrypoint=version.entrypoint if version else "",
        express_state=version.express_state if version else "",
        express_message=version.express_message if version else "",
        is_packed=version.is_packed if version else False,
    )


def plan_endpoint(user: User, wanted: EndpointInput, models: Models) -> list[ServedEntity]:
    """The served entities of a new endpoint, unsaved; `models` are those that may be served.

    Raises:
        InvalidParameterValue: With each problem's field.
        FeatureDisabled: Throughput optimized is asked for while the preview is off.
    """
    problems = Problems()
    if problem := name_problem(wanted.name):
        problems.add("name", problem)
    check_tags(wanted.tags, problems)
    entities = _entities(wanted.entities, None, models, problems)
    check_variables(entities, problems, user=user, creator=user)
    problems.raise_if_any()
    return entities


def name_problem(name: str) -> str:
    """What is wrong with an endpoint's name; empty when nothing is."""
    if not NAME.fullmatch(name):
        return f"“{name}” is not a name. Use 1 to 63 letters, digits, - and _ only."
    if name.startswith(RESERVED_PREFIX):
        return f"Names that start with {RESERVED_PREFIX} are reserved."
    if name in RESERVED_NAMES:
        return f"“{name}” is reserved. Choose another name."
    return ""


def plan_config(
    user: User,
    endpoint: Endpoint,
    entities: Sequence[EntityInput],
    previous: EndpointConfig | None,
    models: Models,
) -> list[ServedEntity]:
    """The served entities of an endpoint's next config, unsaved; `models` may be served.

    Raises:
        InvalidParameterValue: With each problem's field.
        FeatureDisabled: Throughput optimized is asked for while the preview is off.
    """
    problems = Problems()
    planned = _entities(entities, previous, models, problems)
    creator = endpoint.creator
    check_variables(planned, problems, user=user, creator=creator, previous=previous)
    problems.raise_if_any()
    return planned


def check_tags(tags: Mapping[str, str], problems: Problems) -> None:
    """Check keys and values of endpoint tags."""
    for key, value in tags.items():
        if not key or len(key) > 255:
            problems.add("tags", "A tag's key has 1 to 255 characters.")
        if len(value) > 1024:
            problems.add("tags", f"The value of tag “{key[:64]}” is longer than 1024 characters.")


def _entities(
    wanted: Sequence[EntityInput],
    previous: EndpointConfig | None,
    models: Models,
    problems: Problems,
) -> list[ServedEntity]:
    if not wanted:
        problems.add("config.served_entities", "Give at least one served entity.")
    if len(wanted) > settings.MAX_SERVED_ENTITIES:
        problems.add(
            "config.served_entities",
            f"{len(wanted)} served entities; an endpoint has at most "
            f"{settings.MAX_SERVED_ENTITIES}.",
        )
        return []
    before = list(previous.entities.all()) if previous else []
    planned = [
        _entity(index, entity, before, models, problems, is_only=len(wanted) == 1)
        for index, entity in enumerate(wanted)
    ]
    _check_names(planned, problems)
    _check_traffic(wanted, planned, problems)
    return planned


def _entity(
    position: int,
    wanted: EntityInput,
    before: Sequence[ServedEntity],
    models: Models,
    problems: Problems,
    *,
    is_only: bool,
) -> ServedEntity:
    path = f"config.served_entities[{position}]"
    version = _find_version(wanted, path, models, problems)
    number = str(version.version) if version else wanted.entity_version
    entity = ServedEntity(
        position=position,
        name=wanted.name or default_name(wanted.entity_name, number),
        entity_name=wanted.entity_name,
        entity_version=number,
        model_version=version,
        workload_type=_workload_type(wanted, path, problems),
        scale_to_zero_enabled=bool(wanted.scale_to_zero_enabled),
        environment_vars=dict(wanted.environment_vars or {}),
        traffic_percentage=_traffic(wanted, path, problems, is_only=is_only),
    )
    if not NAME.fullmatch(entity.name):
        problems.add(
            f"{path}.name",
            f"“{entity.name}” is not a name. Use 1 to 63 letters, digits, - and _ only.",
        )
    _set_concurrency(entity, wanted, path, problems)
    same = _same_entity(entity, before)
    entity.batching = _batching(wanted, same, f"{path}.batching", problems)
    entity.throughput_optimized = _switch(wanted, entity, same, path, problems)
    return entity


def _find_version(
    wanted: EntityInput, path: str, models: Models, problems: Problems
) -> ModelVersion | None:
    if not wanted.entity_name:
        problems.add(f"{path}.entity_name", "Name a registered model: catalog.schema.model.")
        return None
    if not wanted.entity_version:
        problems.add(f"{path}.entity_version", "Give a version number or @alias.")
        return None
    try:
        version = registry.find_version_among(models, wanted.entity_name, wanted.entity_version)
    except ResourceDoesNotExist as missing:
        problems.add(f"{path}.entity_version", missing.message)
        return None
    if version.status != VersionStatus.READY:
        problems.add(
            f"{path}.entity_version",
            f"{version} is {version.get_status_display().lower()}; "
            "only a version whose files are complete can be served.",
        )
    return version


def default_name(entity_name: str, entity_version: str) -> str:
    """A served entity's name where none is given: `<model>-<version>`."""
    model = re.sub(r"[^A-Za-z0-9_-]", "-", entity_name.rpartition(".")[2])
    number = re.sub(r"[^A-Za-z0-9_-]", "", entity_version)
    return f"{model[: 62 - len(number)]}-{number}"


def _workload_type(wanted: EntityInput, path: str, problems: Problems) -> str:
    name = wanted.workload_type or "CPU"
    if name not in WORKLOAD_TYPES:
        problems.add(
            f"{path}.workload_type",
            f"There is no workload type “{name}”. Choose one of {', '.join(WORKLOAD_TYPES)}.",
        )
    return name


def _set_concurrency(
    entity: ServedEntity, wanted: EntityInput, path: str, problems: Problems
) -> None:
    """A size, or numbers of one's own; Small where neither is said."""
    least, most = wanted.min_provisioned_concurrency, wanted.max_provisioned_concurrency
    if least is None and most is None:
        size = wanted.workload_size or "Small"
        if size not in WORKLOAD_SIZES:
            problems.add(
                f"{path}.workload_size",
                f"There is no size “{size}”. Choose one of {', '.join(WORKLOAD_SIZES)}, or give "
                "min_provisioned_concurrency and max_provisioned_concurrency.",
            )
            return
        entity.workload_size = size
        entity.min_provisioned_concurrency, entity.max_provisioned_concurrency = WORKLOAD_SIZES[
            size
        ]
        return
    if wanted.workload_size and wanted.workload_size != "Custom":
        problems.add(
            f"{path}.workload_size",
            "Give either a size or min_ and max_provisioned_concurrency, not both.",
        )
    least = most if least is None else least
    most = least if most is None else most
    _check_range(least or 0, most or 0, path, problems, may_be_zero=entity.scale_to_zero_enabled)
    entity.workload_size = ""
    entity.min_provisioned_concurrency = max(0, least or 0)
    entity.max_provisioned_concurrency = max(0, most or 0)


def _check_range(
    least: int, most: int, path: str, problems: Problems, *, may_be_zero: bool
) -> None:
    floor = 0 if may_be_zero else CONCURRENCY_STEP
    for name, value, lowest in (
        ("min_provisioned_concurrency", least, floor),
        ("max_provisioned_concurrency", most, CONCURRENCY_STEP),
    ):
        if value % CONCURRENCY_STEP or not lowest <= value <= settings.MAX_CONCURRENCY:
            problems.add(
                f"{path}.{name}",
                f"{value}: give a multiple of {CONCURRENCY_STEP} from {lowest} "
                f"to {settings.MAX_CONCURRENCY}.",
            )
    if most < least:
        problems.add(
            f"{path}.max_provisioned_concurrency",
            f"{most} is less than min_provisioned_concurrency, {least}.",
        )


def _batching(
    wanted: EntityInput, same: ServedEntity | None, path: str, problems: Problems
) -> dict[str, object]:
    """The overrides; not said on an update: unchanged, since typed clients cannot send them."""
    if wanted.batching is None:
        return dict(same.batching) if same else {}
    for key, value in wanted.batching.items():
        if key == "preferred_batch_size":
            _check_preferred(value, wanted.batching.get("max_batch_size"), path, problems)
            continue
        if key not in BATCHING_BOUNDS:
            known = ", ".join([*BATCHING_BOUNDS, "preferred_batch_size"])
            problems.add(f"{path}.{key[:64]}", f"There is no such setting. Known are {known}.")
            continue
        least, most = BATCHING_BOUNDS[key]
        if not _is_whole(value) or not least <= value <= most:  # type: ignore[operator]  # an int
            problems.add(f"{path}.{key}", f"Give a whole number from {least} to {most}.")
    return dict(wanted.batching)


def _check_preferred(value: object, largest: object, path: str, problems: Problems) -> None:
    most = largest if isinstance(largest, int) else BATCHING_BOUNDS["max_batch_size"][1]
    if (
        not isinstance(value, (list, tuple))
        or len(value) > MAX_PREFERRED_SIZES
        or not all(_is_whole(size) and 1 <= size <= most for size in value)
    ):
        problems.add(
            f"{path}.preferred_batch_size",
            f"Give at most {MAX_PREFERRED_SIZES} whole numbers from 1 to {most}.",
        )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _same_entity(entity: ServedEntity, before: Sequence[ServedEntity]) -> ServedEntity | None:
    """The entity that this one continues: of the same name, else the only one of its model."""
    by_name = next((old for old in before if old.name == entity.name), None)
    by_model = next((old for old in before if old.entity_name == entity.entity_name), None)
    return by_name or by_model


def _switch(
    wanted: EntityInput,
    entity: ServedEntity,
    same: ServedEntity | None,
    path: str,
    problems: Problems,
) -> bool:
    """The throughput-optimized switch; not said: unchanged. Asked for, its rules must hold.

    That staging still runs refuses nothing: the deployment waits for it.
    """
    if wanted.throughput_optimized is None:
        return bool(same and same.throughput_optimized)
    if not wanted.throughput_optimized or entity.model_version is None:
        return wanted.throughput_optimized
    for rule in eligibility_of(entity.model_version, entity.workload_type).failed:
        problems.add(f"{path}.throughput_optimized", f"{rule.title}: {rule.message} {rule.cure}")
        problems.of_preview += rule.reason == ReasonCode.PREVIEW_OFF
    return True


def _traffic(wanted: EntityInput, path: str, problems: Problems, *, is_only: bool) -> int:
    share = wanted.traffic_percentage
    if share is None:
        if not is_only:
            problems.add(f"{path}.traffic_percentage", "Give this served entity's share.")
        return 100
    if not 0 <= share <= 100:
        problems.add(f"{path}.traffic_percentage", f"{share}: give a whole number from 0 to 100.")
        return 0
    return share


def _check_traffic(
    wanted: Sequence[EntityInput], planned: Sequence[ServedEntity], problems: Problems
) -> None:
    total = sum(entity.traffic_percentage for entity in planned)
    if (
        planned
        and total != 100
        and all(w.traffic_percentage is not None or len(planned) == 1 for w in wanted)
    ):
        problems.add("config.traffic_config", f"The shares total {total}; they must total 100.")


def _check_names(planned: Sequence[ServedEntity], problems: Problems) -> None:
    seen: set[str] = set()
    for entity in planned:
        if entity.name in seen:
            problems.add(
                f"config.served_entities[{entity.position}].name",
                f"“{entity.name}” is used twice. Give each served entity a name of its own.",
            )
        seen.add(entity.name)
