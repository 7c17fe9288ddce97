"""SCIM's way of changing users and groups: a list of operations on attributes.

Read here into plain wishes; `services` and `groups` carry them out. Attributes that mean nothing
here (entitlements, roles, external ids) are accepted and not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from portal.rest import InvalidParameterValue

IGNORED = frozenset({"entitlements", "roles", "externalid", "schemas", "meta", "id"})
MEMBER = re.compile(r'members\[\s*value\s+eq\s+"([^"]{1,64})"\s*\]', re.IGNORECASE)
FILTER = re.compile(r'\s*(\w+)\s+(eq|co|sw)\s+"([^"]{1,254})"\s*', re.IGNORECASE)


class Condition(NamedTuple):
    """A filter on one attribute: `userName eq "maria"`."""

    attribute: str  # in small letters
    operator: str  # eq, co (contains), sw (starts with)
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChange:
    """What of a user is to be different; None for what stays."""

    is_active: bool | None = None
    first_name: str | None = None
    last_name: str | None = None
    email: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """Who joins and who leaves, by user id; `only` is everybody who is in it afterwards."""

    name: str | None = None
    joining: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()
    only: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation; without a path its value names the attributes."""

    op: str  # add, remove, replace
    path: str = ""
    value: Any = field(default=None)


def read_condition(text: str, attributes: Iterable[str]) -> Condition | None:
    """The filter of a list; None without one.

    Raises:
        InvalidParameterValue: It is another kind of filter, or on another attribute.
    """
    if not text.strip():
        return None
    found = FILTER.fullmatch(text)
    if found is None or found[1].lower() not in {name.lower() for name in attributes}:
        raise InvalidParameterValue(
            f'filter must be like {next(iter(attributes))} eq "…", with eq, co or sw, on one of '
            f"{', '.join(attributes)}."
        )
    return Condition(found[1].lower(), found[2].lower(), found[3])


def read_user(body: Mapping[str, Any]) -> UserChange:
    """A whole user, as given to create or replace one; attributes that mean nothing are left."""
    change = UserChange()
    for name in ("displayName", "name", "emails", "active"):
        if body.get(name) is not None:
            change = _user_attribute(change, name, body[name])
    return change


def read_user_operations(operations: Iterable[Operation]) -> UserChange:
    """What operations ask of a user.

    Raises:
        InvalidParameterValue: An attribute that cannot be changed, or a value that it cannot have.
    """
    change = UserChange()
    for operation in operations:
        if operation.op == "remove":
            raise InvalidParameterValue("Attributes of users are replaced, not removed.")
        for path, value in _attributes(operation):
            change = _user_attribute(change, path, value)
    return change


def read_group_operations(operations: Iterable[Operation]) -> GroupChange:
    """What operations ask of a group.

    Raises:
        InvalidParameterValue: An attribute that cannot be changed, or a value that it cannot have.
    """
    change = GroupChange()
    for operation in operations:
        one = MEMBER.fullmatch(operation.path.strip())
        if one is not None and operation.op == "remove":
            change = _leave(change, {_user_id(one[1])})
            continue
        for path, value in _attributes(operation):
            change = _group_attribute(change, operation.op, path, value)
    return change


def read_members(value: Any) -> frozenset[int]:
    """The users in `[{"value": "<id>"}]`."""
    members = [value] if isinstance(value, Mapping) else value
    if not isinstance(members, list):
        raise InvalidParameterValue('members must be a list of {"value": "<id of a user>"}.')
    return frozenset(
        _user_id(member.get("value") if isinstance(member, Mapping) else member)
        for member in members
    )


def _attributes(operation: Operation) -> Iterator[tuple[str, Any]]:
    if operation.path:
        yield operation.path, operation.value
    elif isinstance(operation.value, Mapping):
        yield from operation.value.items()
    else:
        raise InvalidParameterValue("An operation without a path takes an object as its value.")


def _group_attribute(change: GroupChange, op: str, path: str, value: Any) -> GroupChange:
    attribute = path.strip().lower()
    if attribute in IGNORED:
        return change
    if attribute == "displayname" and op != "remove":
        return replace(change, name=_text(value, "displayName"))
    if attribute != "members":
        raise InvalidParameterValue(f"“{path[:100]}” of a group cannot be changed by “{op}”.")
    if op == "replace" or (op == "remove" and value is None):
        nobody_or = frozenset() if value is None else read_members(value)
        return replace(change, only=nobody_or, joining=frozenset(), leaving=frozenset())
    members = read_members(value)
    if op == "remove":
        return _leave(change, members)
    return replace(change, joining=change.joining | members, leaving=change.leaving - members)


def _leave(change: GroupChange, members: Iterable[int]) -> GroupChange:
    gone = frozenset(members)
    return replace(change, joining=change.joining - gone, leaving=change.leaving | gone)


def _user_attribute(change: UserChange, path: str, value: Any) -> UserChange:
    attribute = path.strip().lower()
    if attribute in IGNORED | {"username", "groups"}:
        return change  # as with the mirrored product, these do not change here
    if attribute == "active":
        return replace(change, is_active=_boolean(value))
    if attribute == "displayname":
        return replace(change, first_name=_text(value, path), last_name="")
    if attribute == "name" and isinstance(value, Mapping):
        return replace(
            change,
            first_name=_text(value.get("givenName") or "", "name.givenName"),
            last_name=_text(value.get("familyName") or "", "name.familyName"),
        )
    if attribute == "name.givenname":
        return replace(change, first_name=_text(value, path))
    if attribute == "name.familyname":
        return replace(change, last_name=_text(value, path))
    if attribute == "emails":
        return replace(change, email=_email(value))
    raise InvalidParameterValue(f"“{path[:100]}” of a user cannot be changed.")


def _boolean(value: Any) -> bool:
    """databricks-sdk leaves a value that is false out; other clients send text, or wrap it."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, Mapping):
        value = value.get("value")
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise InvalidParameterValue("active must be true or false.")


def _text(value: Any, name: str) -> str:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        value = value[0].get("value")
    if not isinstance(value, str) or len(value) > 150:
        raise InvalidParameterValue(f"{name} must be a text of at most 150 characters.")
    return value.strip()


def _email(value: Any) -> str:
    """The primary one of `[{"value", "primary"}]`, else the first."""
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise InvalidParameterValue('emails must be a list of {"value": "<address>"}.')
    if not value:
        return ""
    chosen = next((item for item in value if item.get("primary") is True), value[0])
    return _text(chosen.get("value"), "emails")


def _user_id(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"\d{1,18}", value, re.ASCII):
        raise InvalidParameterValue("A member's value must be the id of a user, as a text.")
    return int(value)
