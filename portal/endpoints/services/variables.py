"""Environment variables of served entities: names, sizes, and the secrets that they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from django.conf import settings

from portal.accounts.models import User
from portal.endpoints.models import EndpointConfig, ServedEntity
from portal.secrets import services as secrets

if TYPE_CHECKING:
    from portal.endpoints.services.validation import Problems

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_VARIABLE_CHARACTERS = 32_768


def check_variables(
    entities: Iterable[ServedEntity],
    problems: Problems,
    *,
    user: User,
    creator: User,
    previous: EndpointConfig | None = None,
) -> None:
    """Check the variables of every entity.

    Args:
        entities: As planned.
        problems: Where to put what is wrong.
        user: Who asks; they must read each secret that `previous` does not use already.
        creator: Of the endpoint; they must read every secret.
        previous: The config that is replaced.
    """
    used = {
        value
        for entity in (previous.entities.all() if previous else ())
        for value in entity.environment_vars.values()
    }
    for entity in entities:
        path = f"config.served_entities[{entity.position}].environment_vars"
        variables: Mapping[str, str] = entity.environment_vars
        for problem in _problems_with_names(variables):
            problems.add(path, problem)
        for problem in secrets.problems_with(variables, user=user, creator=creator, used=used):
            problems.add(path, problem)


def _problems_with_names(variables: Mapping[str, str]) -> list[str]:
    found = []
    if len(variables) > settings.MAX_ENVIRONMENT_VARIABLES:
        found.append(
            f"{len(variables)} variables; a served entity has at most "
            f"{settings.MAX_ENVIRONMENT_VARIABLES}."
        )
    for name, value in variables.items():
        if not VARIABLE.fullmatch(name) or len(name) > 255:
            found.append(
                f"“{name[:64]}” is not a variable name. Use letters, digits and _, "
                "and do not start with a digit."
            )
        if len(value) > MAX_VARIABLE_CHARACTERS:
            found.append(f"{name[:64]} is longer than {MAX_VARIABLE_CHARACTERS} characters.")
    return found
