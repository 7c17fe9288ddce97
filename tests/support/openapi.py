"""A portal with something of everything, and its OpenAPI document made ready for schemathesis.

schemathesis makes up names; most calls would end in 404. So a name that a call takes is one of
those that exist or any other, and answers may hold no field that the document does not name.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.support.live_portal import Files, LivePortal

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
PIECES = 8  # of everything, since deleting is among the calls


@dataclass(frozen=True)
class Names:
    """What exists."""

    endpoints: list[str]
    endpoint_ids: list[str]
    models: list[str]
    tokens: list[str]


def build() -> None:
    """Fill the database and print the names. Runs in a process of the live portal's."""
    from portal.accounts.models import User
    from portal.accounts.services import create_token
    from portal.endpoints import routes
    from tests.support import factories as make

    admin = User.objects.get(username="conformer")
    endpoints = []
    models = []
    for number in range(PIECES):
        model = make.RegisteredModelFactory(name=f"main.default.known{number}", owner=admin)
        model.last_version = 3
        model.save(update_fields=["last_version"])
        version = make.ModelVersionFactory(model=model, version=1, packed=True)
        make.ModelVersionFactory(model=model, version=2, uploading=True)
        make.ModelVersionFactory(model=model, version=3, uploading=True)
        make.ModelAliasFactory(model_version=version)
        models.append(model.name)
        served = make.ModelVersionFactory(staged=True, model__owner=admin)
        endpoints.append(
            make.live_endpoint(
                creator=admin,
                endpoint_name=f"known{number}",
                model_version=served,
                throughput_optimized=number % 2 == 0,
                workload_size="Small" if number % 3 else "",
            )
        )
    tokens = [create_token(admin, comment="known")[0].public_id for _ in range(PIECES)]
    for endpoint in endpoints:
        routes.publish(endpoint)
    names = Names(
        endpoints=[endpoint.name for endpoint in endpoints],
        endpoint_ids=[endpoint.public_id for endpoint in endpoints],
        models=models,
        tokens=tokens,
    )
    sys.stdout.write(json.dumps(asdict(names)))


def fill(portal: LivePortal) -> tuple[str, Names]:
    """An admin's token, and what he has."""
    token = portal.token("conformer", is_admin=True)
    code = "from tests.support.openapi import build; build()"
    names = Names(**json.loads(portal.manage("shell", "-v", "0", "-c", code)))
    files = Files(portal, token)
    for number in range(PIECES):
        files.file("PUT", f"/Volumes/main/default/data/known{number}.bin", data=b"0123456789")
    return token, names


def prepared(document: dict[str, Any], names: Names) -> dict[str, Any]:
    """The document with known names beside all others, and with closed answers."""
    ready = copy.deepcopy(document)
    for path, operations in ready["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                _widen(parameter, "schema", _known(path, parameter, names))
    schemas = ready["components"]["schemas"]
    for name, values in _bodies(names).items():
        for field, texts in values.items():
            _widen(schemas[name]["properties"], field, texts)
    for name in _answered(ready):
        if "properties" in schemas[name]:
            schemas[name].setdefault("additionalProperties", False)
    return ready


def _known(path: str, parameter: dict[str, Any], names: Names) -> list[str]:
    """The values of a parameter that exist."""
    files = [f"Volumes/main/default/data/known{number}.bin" for number in range(PIECES)]
    if "/unity-catalog/" in path:
        known = {"name": names.models, "version": ["1", "2", "3"], "alias": ["champion"]}
        known["filter"] = [f"name='{names.models[0]}'", "run_id = 'r'"]
    elif "serving-endpoints" in path:
        known = {"name": names.endpoints, "entity": ["main"], "public_id": names.endpoint_ids}
    elif "directories" in path:
        known = {"path": ["Volumes/main/default/data", "Volumes/main/default/new"]}
    else:
        known = {"path": files if parameter["in"] == "path" else [f"/{file}" for file in files]}
    return known.get(parameter["name"], [])


def _bodies(names: Names) -> dict[str, dict[str, list[str]]]:
    models = {"name": names.models}
    versions = models | {"version": ["1", "2", "3"]}
    aliases = models | {"alias": ["champion"]}
    files = {"path": ["/Volumes/main/default/data/known1.bin"]}
    return {
        "Name": models,
        "UpdateModel": models,
        "ModelTag": models,
        "SetModelTag": models,
        "Alias": aliases,
        "SetAlias": aliases | {"version": ["1"]},
        "CreateVersion": models,
        "Version": versions,
        "UpdateVersion": versions,
        "VersionTag": versions,
        "SetVersionTag": versions,
        "Credentials": versions,
        "Stage": {"model_name": names.models, "model_version": ["1"]},
        "FileLocation": files,
        "PartUrls": files,
        "TokenDeleteInput": {"token_id": names.tokens},
        "ServedEntityInput": {"entity_name": names.models, "entity_version": ["1", "@champion"]},
        "ServedModelInput": {"model_name": names.models, "model_version": ["1", "@champion"]},
        "GrantInput": {"user_name": ["conformer"], "group_name": ["users", "admins"]},
    }


def _widen(place: dict[str, Any], key: str, known: list[str]) -> None:
    if known:
        place[key] = {"anyOf": [{"type": "string", "enum": known}, place[key]]}


def _answered(document: dict[str, Any]) -> set[str]:
    """Names of the components that answers are made of, and no request."""
    schemas = document["components"]["schemas"]
    operations = [o for path in document["paths"].values() for o in path.values()]
    asked = _reachable([o.get("requestBody") for o in operations], schemas)
    return _reachable([o["responses"] for o in operations], schemas) - asked


def _reachable(start: Any, schemas: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            reference = value.get("$ref")  # or a property of this name
            name = reference.rpartition("/")[2] if isinstance(reference, str) else ""
            if name and name not in found:
                found.add(name)
                waiting.append(schemas[name])
            waiting += value.values()
    return found


def run_schemathesis(
    folder: Path, url: str, document: dict[str, Any], token: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run schemathesis' command line on the document; its report is what it prints."""
    (folder / "openapi.json").write_text(json.dumps(document))
    return subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)),
            *("run", str(folder / "openapi.json"), "--url", url),
            *("--header", f"Authorization: Bearer {token}", "--checks", ",".join(CHECKS)),
            *("--no-color", "--suppress-health-check", "all", "--warnings", "off"),
            *options,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


CONFIG = Path(__file__).with_name("schemathesis.toml")
