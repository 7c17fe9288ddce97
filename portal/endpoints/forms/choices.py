"""What a served entity of the form may choose from, and what follows from what was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Exists, OuterRef

from portal.endpoints import services
from portal.endpoints.forms.fields import CUSTOM, EndpointFields, EntityFields
from portal.endpoints.forms.parse import Errors
from portal.endpoints.runtime import device_for
from portal.registry import services as registry
from portal.registry.models import ModelVersion
from portal.registry.models import RegisteredModelQuerySet as Models
from portal.registry.states import ExpressState, VersionStatus
from portal.rest import ApiError
from serving.eligibility import ENV_PACK, Eligibility
from serving.spec import DeviceKind
from serving.workloads import WORKLOAD_SIZES, WORKLOAD_TYPES, WorkloadType, replicas_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    value: str
    label: str
    is_selected: bool
    is_missing: bool = False  # chosen, but no longer there


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceGroup:
    label: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityChoices:
    """One served entity as the page shows it.

    Attributes:
        offers_throughput: The checkbox is in the page: all rules pass, or only staging still runs.
        warning: What will probably go wrong with this version on this compute.
    """

    fields: EntityFields
    models: tuple[Choice, ...]
    versions: tuple[Choice, ...]
    workload_types: tuple[ChoiceGroup, ...]
    sizes: tuple[Choice, ...]
    version: ModelVersion | None
    eligibility: Eligibility
    is_emulated: bool
    warning: str

    @property
    def offers_throughput(self) -> bool:
        return self.eligibility.is_eligible or self.eligibility.may_become

    @property
    def is_custom(self) -> bool:
        return self.fields.scale_out == CUSTOM


def has_gpu() -> bool:
    """Whether GPU workload types get a GPU on this machine."""
    return device_for("GPU_SMALL").kind is DeviceKind.CUDA


def choices_of(fields: EntityFields, models: Models) -> EntityChoices:
    """What one served entity's part of the page shows; `models` are those to choose from."""
    is_gpu_here = has_gpu()
    version = chosen_version(fields, models)
    workload = WORKLOAD_TYPES.get(fields.workload_type)
    is_gpu = workload is not None and workload.is_gpu
    return EntityChoices(
        fields=fields,
        models=_models(models, fields.model),
        versions=_versions(models, fields.model, fields.version),
        workload_types=_workload_types(fields.workload_type, is_gpu_here=is_gpu_here),
        sizes=_sizes(fields.scale_out),
        version=version,
        eligibility=services.eligibility_of(version, fields.workload_type),
        is_emulated=is_gpu and not is_gpu_here,
        warning=_warning(version, is_gpu=is_gpu),
    )


def all_choices(fields: EndpointFields, models: Models) -> list[EntityChoices]:
    """`choices_of` for every served entity of the form."""
    return [choices_of(entity, models) for entity in fields.entities]


def chosen_version(fields: EntityFields, models: Models) -> ModelVersion | None:
    """The model version that is picked, None while none is or when it is gone."""
    if not fields.model or not fields.version:
        return None
    try:
        return registry.find_version_among(models, fields.model, fields.version)
    except ApiError:
        return None


def drop_unknown_version(fields: EntityFields, models: Models) -> str:
    """The picked version if the picked model has it, else the model's newest one, else nothing."""
    values = [choice.value for choice in _versions(models, fields.model, fields.version)]
    known = [c.value for c in _versions(models, fields.model, "")]
    if fields.version in known:
        return fields.version
    return known[0] if known and values else ""


def complain_about_hidden_switch(fields: EndpointFields, models: Models, errors: Errors) -> None:
    """Say at the switch's place that it was sent for a choice that does not allow it."""
    for entity in fields.entities:
        version = chosen_version(entity, models)
        if not entity.throughput_optimized or not version:
            continue
        found = services.eligibility_of(version, entity.workload_type)
        if not found.is_eligible and not found.may_become:
            errors.add(f"{entity.prefix}-throughput_optimized", found.message)


def _models(models: Models, selected: str) -> tuple[Choice, ...]:
    usable = ModelVersion.objects.filter(model=OuterRef("pk"), status=VersionStatus.READY)
    names = list(models.filter(Exists(usable)).order_by("name").values_list("name", flat=True))
    return _choices(names, selected)


def _choices(values: Sequence[str], selected: str) -> tuple[Choice, ...]:
    found = tuple(Choice(value=v, label=v, is_selected=v == selected) for v in values)
    return found + _missing(found, selected)


def _missing(found: Sequence[Choice], selected: str) -> tuple[Choice, ...]:
    """A choice that was made and is no longer there: it stays in the page, and says so."""
    if not selected or any(choice.is_selected for choice in found):
        return ()
    label = f"{selected} (not found)"
    return (Choice(value=selected, label=label, is_selected=True, is_missing=True),)


def _versions(models: Models, model: str, selected: str) -> tuple[Choice, ...]:
    versions = list(
        ModelVersion.objects.filter(model__in=models, model__name=model, status=VersionStatus.READY)
        .order_by("-version")
        .prefetch_related("aliases")
    )
    plain = [
        Choice(
            value=str(v.version),
            label=f"Version {v.version} · {_express(v)}",
            is_selected=str(v.version) == selected,
        )
        for v in versions
    ]
    aliases = [
        Choice(
            value=f"@{alias.alias}",
            label=f"@{alias.alias} (now version {v.version})",
            is_selected=f"@{alias.alias}" == selected,
        )
        for v in versions
        for alias in v.aliases.all()
    ]
    found = (*plain, *aliases)
    return found + _missing(found, selected)


def _express(version: ModelVersion) -> str:
    if version.express_state == ExpressState.NOT_STAGED and not version.is_packed:
        return "not express"
    return ExpressState(version.express_state).label.lower()


def _workload_types(selected: str, *, is_gpu_here: bool) -> tuple[ChoiceGroup, ...]:
    def group(label: str, kinds: Sequence[WorkloadType]) -> ChoiceGroup:
        return ChoiceGroup(
            label=label,
            choices=tuple(
                Choice(value=k.name, label=_workload_label(k), is_selected=k.name == selected)
                for k in kinds
            ),
        )

    known = list(WORKLOAD_TYPES.values())
    gpu_label = "GPU" if is_gpu_here else "GPU (CPU emulation on this machine)"
    return (
        group("CPU", [k for k in known if not k.is_gpu]),
        group(gpu_label, [k for k in known if k.is_gpu]),
    )


def _workload_label(kind: WorkloadType) -> str:
    return kind.label if kind.is_gpu else f"{kind.label} ({kind.memory_gib} GB a replica)"


def _sizes(selected: str) -> tuple[Choice, ...]:
    ranges = {
        size: f"{least} concurrent" if least == most else f"{least} to {most} concurrent"
        for size, (least, most) in WORKLOAD_SIZES.items()
    }
    ranges[CUSTOM] = "your own range"
    return tuple(
        Choice(value=size, label=text, is_selected=size == selected)
        for size, text in ranges.items()
    )


def _warning(version: ModelVersion | None, *, is_gpu: bool) -> str:
    if version is not None and version.entrypoint and not version.is_packed:
        return (
            "This version names a custom entrypoint but was registered without its packed "
            f"environment, which that needs: it cannot be deployed. Register it with {ENV_PACK}."
        )
    if version is None or not is_gpu or not version.is_packed_for_cpu:
        return ""
    return (
        f"This version was packed on the CPU runtime {version.databricks_runtime}, so its "
        "environment may lack the GPU builds of its packages. For use on a GPU, log and register "
        f"it from a GPU runtime such as {version.databricks_runtime}-gpu."
    )


def concurrency_of(fields: EntityFields) -> tuple[int, int]:
    """Least and most provisioned concurrency; 0 where it cannot be read."""
    if fields.scale_out in WORKLOAD_SIZES:
        return WORKLOAD_SIZES[fields.scale_out]
    least, most = fields.min_concurrency, fields.max_concurrency
    return (int(least) if least.isdigit() else 0, int(most) if most.isdigit() else 0)


def replicas_of(fields: EntityFields) -> tuple[int, int]:
    """Least and most replicas."""
    least, most = (min(n, 4096) for n in concurrency_of(fields))
    if fields.workload_type not in WORKLOAD_TYPES or most < least:
        return (0, 0)
    return (
        replicas_for(fields.workload_type, least) if least else 0,
        replicas_for(fields.workload_type, most) if most else 0,
    )
