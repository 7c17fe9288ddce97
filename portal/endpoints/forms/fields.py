"""The create and edit form's fields as they were sent: text, row by row, kept as typed.

Names of fields are ids too: `entity-0-model`, `entity-0-env-1-name`, `tag-0-name`. A page that is
sent back keeps every value, whether it can be used or not; `parse` reads them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from django.http import QueryDict

from portal.endpoints.forms.batching import (
    BATCHING_KEYS,
    BatchingField,
    automatic_values,
    batching_fields,
    typed,
)
from portal.endpoints.models import Endpoint, EndpointConfig, ServedEntity
from portal.endpoints.services import default_name
from serving.workloads import WORKLOAD_SIZES

CUSTOM = "Custom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A name and a value, such as an environment variable or a tag."""

    name: str = ""
    value: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.name.strip() and not self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFields:
    """One served entity of the form."""

    index: int
    model: str = ""
    version: str = ""
    workload_type: str = "CPU"
    throughput_optimized: bool = False
    scale_out: str = "Small"
    min_concurrency: str = "4"
    max_concurrency: str = "4"
    scale_to_zero: bool = False
    name: str = ""
    traffic: str = ""
    environment: tuple[Row, ...] = ()
    batching: Mapping[str, str] = field(default_factory=dict)
    was_named: str = ""  # in the config that is being edited
    automatic: Mapping[str, str] = field(default_factory=dict)  # batching in force of itself

    @property
    def prefix(self) -> str:
        """Begins the name of each field."""
        return f"entity-{self.index}"

    @property
    def default_name(self) -> str:
        """What the served entity is called when the user does not say."""
        if not self.model or not self.version:
            return ""
        if self.version.startswith("@"):
            return f"{default_name(self.model, '')}(version of {self.version})"
        return default_name(self.model, self.version)

    @property
    def batching_fields(self) -> tuple[BatchingField, ...]:
        """The fields for batching."""
        return batching_fields(self.batching, self.automatic)

    @property
    def has_advanced(self) -> bool:
        """Whether the folded part holds something other than the defaults."""
        return bool(self.name or self.environment or any(self.batching.values()))

    @classmethod
    def read(cls, data: QueryDict, number: int, index: int) -> Self:
        """From the fields `entity-<number>-...`; `index` is its place from now on."""

        def text(name: str, default: str = "") -> str:
            return data.get(f"entity-{number}-{name}", default).strip()

        return cls(
            index=index,
            model=text("model"),
            version=text("version"),
            workload_type=text("workload_type", "CPU"),
            throughput_optimized=text("throughput_optimized") == "on",
            scale_out=text("scale_out", "Small"),
            min_concurrency=text("min_concurrency", "4"),
            max_concurrency=text("max_concurrency", "4"),
            scale_to_zero=text("scale_to_zero") == "on",
            name=text("name"),
            traffic=text("traffic"),
            environment=_rows(data, f"entity-{number}-env"),
            batching={key: text(key) for key in BATCHING_KEYS},
            was_named=text("was_named"),
        )

    @classmethod
    def of(cls, entity: ServedEntity, index: int) -> Self:
        """From a served entity, to be edited."""
        usual_name = default_name(entity.entity_name, entity.entity_version)
        return cls(
            index=index,
            model=entity.entity_name,
            version=entity.entity_version,
            workload_type=entity.workload_type,
            throughput_optimized=entity.throughput_optimized,
            scale_out=entity.workload_size if entity.workload_size in WORKLOAD_SIZES else CUSTOM,
            min_concurrency=str(entity.min_provisioned_concurrency),
            max_concurrency=str(entity.max_provisioned_concurrency),
            scale_to_zero=entity.scale_to_zero_enabled,
            name="" if entity.name == usual_name else entity.name,
            traffic=str(entity.traffic_percentage),
            environment=tuple(
                Row(name=name, value=value)
                for name, value in sorted(entity.environment_vars.items())
            ),
            batching=typed(entity.batching),
            was_named=entity.name,
            automatic=automatic_values(entity),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFields:
    """The whole form."""

    name: str = ""
    description: str = ""
    tags: tuple[Row, ...] = ()
    entities: tuple[EntityFields, ...] = ()
    key: str = ""  # the same for every sending of one page: a second send does nothing

    @classmethod
    def empty(cls, *, model: str = "", version: str = "") -> Self:
        """A new form; `model` and `version` from "Serve this version"."""
        entity = EntityFields(index=0, model=model, version=version)
        return cls(entities=(entity,), key=uuid.uuid4().hex)

    @classmethod
    def read(cls, data: QueryDict) -> Self:
        """From what a browser sent."""
        numbers = _numbers(data, r"entity-(\d+)-model")
        return cls(
            name=data.get("name", "").strip(),
            description=data.get("description", "").strip(),
            tags=_rows(data, "tag"),
            entities=tuple(
                EntityFields.read(data, number, index) for index, number in enumerate(numbers)
            )
            or (EntityFields(index=0),),
            key=data.get("key", "")[:64] or uuid.uuid4().hex,
        )

    @classmethod
    def of(cls, endpoint: Endpoint, config: EndpointConfig | None) -> Self:
        """From an endpoint's newest config, to be edited."""
        entities = list(config.entities.all()) if config else []
        return cls(
            name=endpoint.name,
            description=endpoint.description,
            tags=tuple(Row(name=tag.key, value=tag.value) for tag in endpoint.tags.all()),
            entities=tuple(EntityFields.of(entity, i) for i, entity in enumerate(entities))
            or (EntityFields(index=0),),
            key=uuid.uuid4().hex,
        )

    def changed_by(self, action: str) -> EndpointFields:
        """The form after a button that adds or removes a row; others change nothing.

        Args:
            action: `add-entity`, `remove-entity:0`, `add-env:0`, `remove-env:0:1`, `add-tag`,
                `remove-tag:0`.
        """
        verb, *numbers = action.split(":")
        places = [int(number) for number in numbers if number.isdigit()]
        match verb, places:
            case "add-entity", []:
                return self._with_entities([*self.entities, EntityFields(index=0)])
            case "remove-entity", [at] if len(self.entities) > 1:
                return self._with_entities([e for e in self.entities if e.index != at])
            case "add-env", [at]:
                return self._with_environment(at, lambda rows: (*rows, Row()))
            case "remove-env", [at, row]:
                return self._with_environment(at, lambda rows: rows[:row] + rows[row + 1 :])
            case "add-tag", []:
                return replace(self, tags=(*self.tags, Row()))
            case "remove-tag", [row]:
                return replace(self, tags=self.tags[:row] + self.tags[row + 1 :])
        return self

    def _with_entities(self, entities: list[EntityFields]) -> EndpointFields:
        """With other entities, renumbered; shares of the traffic that nobody typed are proposed."""
        count = len(entities)
        shares = [100 // count + (1 if i < 100 % count else 0) for i in range(count)]
        typed = [e.traffic for e in entities if e.traffic]
        is_proposed = len(typed) < count or sum(int(t) for t in typed if t.isdigit()) != 100
        return replace(
            self,
            entities=tuple(
                replace(entity, index=i, traffic=str(share) if is_proposed else entity.traffic)
                for i, (entity, share) in enumerate(zip(entities, shares, strict=True))
            ),
        )

    def _with_environment(
        self, index: int, change: Callable[[tuple[Row, ...]], tuple[Row, ...]]
    ) -> EndpointFields:
        return replace(
            self,
            entities=tuple(
                replace(e, environment=change(e.environment)) if e.index == index else e
                for e in self.entities
            ),
        )


def _numbers(data: QueryDict, pattern: str) -> list[int]:
    """The numbers in field names of this pattern, in order."""
    found = (re.fullmatch(pattern, key) for key in data)
    return sorted({int(match[1]) for match in found if match})


def _rows(data: QueryDict, prefix: str) -> tuple[Row, ...]:
    """The rows `<prefix>-<number>-name` and `-value`."""
    return tuple(
        Row(
            name=data.get(f"{prefix}-{number}-name", "").strip(),
            value=data.get(f"{prefix}-{number}-value", ""),
        )
        for number in _numbers(data, rf"{re.escape(prefix)}-(\d+)-name")
    )
