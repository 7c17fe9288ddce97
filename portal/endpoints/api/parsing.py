"""Read JSON bodies into typed inputs; every wrong type is reported with its field's path.

`null` counts as absent. Fields of the mirrored product that have no meaning here are accepted and
left alone, but external models, which would be served as something else, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from portal.endpoints.inputs import EndpointInput, EntityInput
from portal.endpoints.services import Grant, default_name
from portal.endpoints.services.validation import Problems
from portal.endpoints.states import PermissionLevel
from portal.registry import services as registry
from portal.registry.models import RegisteredModelQuerySet as Models
from portal.rest import ResourceDoesNotExist

RENEWAL_PERIODS = {"minute"}


class Reader:
    """One JSON object, read field by field."""

    def __init__(self, body: Mapping[str, Any], path: str, problems: Problems) -> None:
        self.body = body
        self.path = path
        self.problems = problems

    def at(self, key: str) -> str:
        """The path of a field."""
        return f"{self.path}.{key}" if self.path else key

    def _typed(self, key: str, kind: type | tuple[type, ...], word: str) -> Any:
        value = self.body.get(key)
        if value is None:
            return None
        is_boolean_number = isinstance(value, bool) and kind is int
        if not isinstance(value, kind) or is_boolean_number:
            self.problems.add(self.at(key), f"Give {word}.")
            return None
        return value

    def text(self, *keys: str) -> str | None:
        """A text, under the first of `keys` that is there."""
        key = next((key for key in keys if self.body.get(key) is not None), keys[0])
        found: str | None = self._typed(key, str, "a text")
        return found

    def integer(self, key: str) -> int | None:
        """A whole number."""
        found: int | None = self._typed(key, int, "a whole number")
        return found

    def boolean(self, key: str) -> bool | None:
        """True or false."""
        found: bool | None = self._typed(key, bool, "true or false")
        return found

    def mapping(self, key: str) -> dict[str, Any] | None:
        """A JSON object, as it is."""
        found: dict[str, Any] | None = self._typed(key, dict, "an object")
        return found

    def inner(self, key: str) -> Reader:
        """A JSON object to read on; empty when absent."""
        return Reader(self.mapping(key) or {}, self.at(key), self.problems)

    def items(self, key: str) -> list[Reader]:
        """A list of JSON objects."""
        found = []
        for index, item in enumerate(self._typed(key, list, "a list") or []):
            path = f"{self.at(key)}[{index}]"
            if isinstance(item, dict):
                found.append(Reader(item, path, self.problems))
            else:
                self.problems.add(path, "Give an object.")
        return found

    def texts(self, key: str) -> list[str]:
        """A list of texts."""
        found = []
        for index, item in enumerate(self._typed(key, list, "a list") or []):
            if isinstance(item, str):
                found.append(item)
            else:
                self.problems.add(f"{self.at(key)}[{index}]", "Give a text.")
        return found

    def text_map(self, key: str) -> dict[str, str] | None:
        """An object whose values are texts."""
        found = self.mapping(key)
        for name, value in (found or {}).items():
            if not isinstance(value, str):
                self.problems.add(self.at(key), f"The value of {name[:64]} must be a text.")
        return None if found is None else {k: v for k, v in found.items() if isinstance(v, str)}


def read_endpoint(body: Mapping[str, Any], models: Models) -> EndpointInput:
    """The body of a creation; `models` are those that the caller may serve.

    Raises:
        InvalidParameterValue: With each wrongly typed field.
    """
    problems = Problems()
    reader = Reader(body, "", problems)
    config = reader.inner("config")
    wanted = EndpointInput(
        name=reader.text("name") or config.text("name") or "",
        entities=_read_entities(config, models, problems),
        description=reader.text("description") or "",
        tags=_read_tags(reader, "tags"),
        email_notifications=_notifications(reader.inner("email_notifications")),
        rate_limits=_rate_limits(reader),
        ai_gateway=_ai_gateway(reader.inner("ai_gateway")),
    )
    problems.raise_if_any()
    return wanted


def read_config(body: Mapping[str, Any], models: Models) -> tuple[EntityInput, ...]:
    """The body of a config update: the same as `config` of a creation, at the top level.

    Raises:
        InvalidParameterValue: With each wrongly typed field.
    """
    problems = Problems()
    entities = _read_entities(Reader(body, "config", problems), models, problems)
    problems.raise_if_any()
    return entities


def read_tags(body: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """The tags to add and the keys to delete.

    Raises:
        InvalidParameterValue: With each wrongly typed field.
    """
    problems = Problems()
    reader = Reader(body, "", problems)
    found = _read_tags(reader, "add_tags"), reader.texts("delete_tags")
    problems.raise_if_any()
    return found


def read_notifications(body: Mapping[str, Any]) -> dict[str, list[str]]:
    """Who is told of updates by e-mail.

    Raises:
        InvalidParameterValue: With each wrongly typed field.
    """
    problems = Problems()
    found = _notifications(Reader(body, "", problems).inner("email_notifications"))
    problems.raise_if_any()
    return found


def read_rate_limits(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rate limits in the older form.

    Raises:
        InvalidParameterValue: With each wrong field.
    """
    problems = Problems()
    found = _rate_limits(Reader(body, "", problems))
    problems.raise_if_any()
    return found


def read_ai_gateway(body: Mapping[str, Any]) -> dict[str, Any]:
    """The AI Gateway's settings; rate limits are checked, the rest is kept as it is.

    Raises:
        InvalidParameterValue: With each wrong field.
    """
    problems = Problems()
    found = _ai_gateway(Reader(body, "", problems))
    problems.raise_if_any()
    return found


def read_grants(body: Mapping[str, Any]) -> list[Grant]:
    """An access control list.

    Raises:
        InvalidParameterValue: With each wrong field.
    """
    problems = Problems()
    grants = []
    for item in Reader(body, "", problems).items("access_control_list"):
        # A service principal is a user of that name.
        users = [item.text(key) for key in ("user_name", "service_principal_name")]
        group = item.text("group_name")
        named = [name for name in (*users, group) if name]
        level = item.text("permission_level")
        if level not in PermissionLevel.values:
            item.problems.add(
                item.at("permission_level"), f"Give one of {', '.join(PermissionLevel.values)}."
            )
        elif len(named) != 1:
            message = "Name one of user_name, group_name and service_principal_name."
            item.problems.add(item.path, message)
        else:
            user = "" if group else named[0]
            grants.append(
                Grant(level=PermissionLevel(level), user_name=user, group_name=group or "")
            )
    problems.raise_if_any()
    return grants


def _read_entities(config: Reader, models: Models, problems: Problems) -> tuple[EntityInput, ...]:
    key = "served_entities" if config.body.get("served_entities") is not None else "served_models"
    readers = config.items(key)
    for reader in readers:
        reader.path = reader.path.replace("served_models", "served_entities")
    shares = _read_shares(config)
    entities = [_read_entity(reader, shares, models) for reader in readers]
    names = {_name_of(entity, models) for entity in entities}
    for name in shares.keys() - names:
        problems.add("config.traffic_config", f"There is no served entity “{name[:64]}”.")
    return tuple(entities)


def _read_shares(config: Reader) -> dict[str, int]:
    shares: dict[str, int] = {}
    for route in config.inner("traffic_config").items("routes"):
        name = route.text("served_entity_name", "served_model_name")
        share = route.integer("traffic_percentage")
        if name is None or share is None:
            route.problems.add(
                route.path, "Give served_entity_name and traffic_percentage of each route."
            )
        else:
            shares[name] = shares.get(name, 0) + share
    return shares


def _read_entity(reader: Reader, shares: Mapping[str, int], models: Models) -> EntityInput:
    if reader.body.get("external_model") is not None:
        reader.problems.add(
            reader.at("external_model"),
            "External models are not served here; name a registered one.",
        )
    version = reader.body.get("entity_version", reader.body.get("model_version"))
    if isinstance(version, int) and not isinstance(version, bool):
        version = str(version)
    elif version is not None and not isinstance(version, str):
        reader.problems.add(reader.at("entity_version"), "Give a text.")
        version = None
    entity = EntityInput(
        entity_name=reader.text("entity_name", "model_name") or "",
        entity_version=version or "",
        name=reader.text("name") or None,
        workload_type=reader.text("workload_type"),
        workload_size=reader.text("workload_size"),
        min_provisioned_concurrency=reader.integer("min_provisioned_concurrency"),
        max_provisioned_concurrency=reader.integer("max_provisioned_concurrency"),
        scale_to_zero_enabled=reader.boolean("scale_to_zero_enabled"),
        throughput_optimized=reader.boolean("throughput_optimized"),
        environment_vars=reader.text_map("environment_vars"),
        batching=reader.mapping("batching"),
    )
    return replace(entity, traffic_percentage=shares.get(_name_of(entity, models)))


def _name_of(entity: EntityInput, models: Models) -> str:
    """The name that the entity will have, so that routes can name it."""
    version = entity.entity_version
    if entity.name is None and version.startswith("@"):
        try:
            found = registry.find_version_among(models, entity.entity_name, version)
            version = str(found.version)
        except ResourceDoesNotExist:
            return ""  # said by the validation
    return entity.name or default_name(entity.entity_name, version)


def _read_tags(reader: Reader, key: str) -> dict[str, str]:
    tags = {}
    for item in reader.items(key):
        name = item.text("key")
        if name is None:
            item.problems.add(item.at("key"), "Give the tag's key.")
        else:
            tags[name] = item.text("value") or ""
    return tags


def _notifications(reader: Reader) -> dict[str, list[str]]:
    keys = ("on_update_success", "on_update_failure")
    return {key: reader.texts(key) for key in keys if reader.body.get(key) is not None}


def _rate_limits(reader: Reader) -> list[dict[str, Any]]:
    """Each limit as it is kept: its key, number of calls and period, and whom it names."""
    found = []
    for limit in reader.items("rate_limits"):
        calls = limit.integer("calls")
        if limit.body.get("tokens") is not None:
            limit.problems.add(
                limit.at("tokens"), "Custom models have no tokens. Give a number of calls."
            )
        elif calls is None:
            limit.problems.add(limit.at("calls"), "Give the number of calls.")
        period = limit.text("renewal_period")
        if period not in RENEWAL_PERIODS:
            limit.problems.add(limit.at("renewal_period"), "The only period is “minute”.")
        key, principal = limit.text("key") or "endpoint", limit.text("principal")
        found.append(
            {"key": key, "calls": calls, "renewal_period": period}
            | ({"principal": principal} if principal else {})
        )
    return found


def _ai_gateway(reader: Reader) -> dict[str, Any]:
    limits = _rate_limits(reader)
    keys = (
        "usage_tracking_config",
        "inference_table_config",
        "guardrails",
        "fallback_config",
    )
    kept = {key: reader.mapping(key) for key in keys}
    answer = {key: value for key, value in kept.items() if value is not None}
    return {"rate_limits": limits, **answer} if limits else answer
