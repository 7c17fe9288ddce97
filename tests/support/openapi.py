"""A portal with something of everything, and its OpenAPI document made ready for schemathesis.

schemathesis makes up names, and nearly all calls would end in 400 or 404. So the names that valid
calls take are those that exist (it also makes invalid calls, with any other), and answers may hold
no field that the document does not name.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from tests.support.live_portal import Files, LivePortal

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
PIECES = 16  # of everything, since deleting is among the calls
TO_DELETE = 4  # of them
FOLDER = "Volumes/main/default/data"
WAITING = "waiting"  # an endpoint without replicas: the gateway answers at once


@dataclass(frozen=True)
class Names:
    """What exists."""

    endpoints: list[str]
    endpoint_ids: list[str]
    models: list[str]
    tokens: list[str]
    scopes: list[str]
    users: list[str]
    groups: list[str]
    links: dict[str, str] = field(default_factory=dict)
    session: str = ""


def build() -> None:
    """Fill the database and print the names. Runs in a process of the live portal's."""
    from django.contrib.auth.models import Group

    from portal.accounts.models import User
    from portal.accounts.services import create_token
    from portal.endpoints import routes
    from portal.endpoints.models import Endpoint
    from portal.previews.services import set_enabled
    from portal.secrets import services as secrets
    from tests.support import factories as make

    admin = User.objects.get(username="conformer")
    set_enabled("throughput_optimized", True, admin)
    endpoints = []
    models = []
    scopes = []
    for number in range(PIECES):
        model = make.RegisteredModelFactory(name=f"main.default.known{number}", owner=admin)
        model.last_version = 3
        model.save(update_fields=["last_version"])
        version = make.ModelVersionFactory(model=model, version=1, staged=True)
        make.ModelVersionFactory(model=model, version=2, uploading=True)
        make.ModelVersionFactory(model=model, version=3, uploading=True)
        make.ModelAliasFactory(model_version=version)
        models.append(model.name)
        scopes.append(f"known{number}")
        secrets.create_scope(admin, scopes[-1])
        secrets.put_secret(admin, scopes[-1], "key", b"value")
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
    Endpoint.objects.filter(name__in=[e.name for e in endpoints[-3:]]).update(is_stopped=True)
    endpoints.append(make.EndpointFactory(name=WAITING, creator=admin))
    users = [str(make.UserFactory(username=f"known{n}").pk) for n in range(PIECES)]
    groups = [str(Group.objects.create(name=f"known{n}").pk) for n in range(PIECES)]
    tokens = [create_token(admin, comment="known")[0].public_id for _ in range(PIECES)]
    for endpoint in endpoints:
        routes.publish(endpoint)
    names = Names(
        endpoints=[endpoint.name for endpoint in endpoints[:-1]],
        endpoint_ids=[endpoint.public_id for endpoint in endpoints],
        models=models,
        tokens=tokens,
        scopes=scopes,
        users=users,
        groups=groups,
    )
    sys.stdout.write(json.dumps(asdict(names)))


def fill(portal: LivePortal) -> tuple[str, Names]:
    """An admin's token, and what he has."""
    portal.token("somebody")  # takes the id 1, which made-up calls may delete
    token = portal.token("conformer", is_admin=True)
    code = "from tests.support.openapi import build; build()"
    names = Names(**json.loads(portal.manage("shell", "-v", "0", "-c", code)))
    files = Files(portal, token)
    for number in range(PIECES):
        files.file("PUT", f"/{_file(number)}", data=b"0123456789")
    links = {
        kind: files("POST", f"/api/2.0/fs/create-{kind}-url", json={"path": f"/{_file(0)}"}).json()
        for kind in ("upload", "download")
    }
    begun = files.file("POST", f"/{_file(0)}?action=initiate-upload&overwrite=true").json()
    return token, replace(
        names,
        links={kind: link["url"].rpartition("/")[2] for kind, link in links.items()},
        session=begun["multipart_upload"]["session_token"],
    )


def _file(number: int) -> str:
    return f"{FOLDER}/known{number}.bin"


def prepared(document: dict[str, Any], names: Names) -> dict[str, Any]:
    """The document with the names that exist, and with closed answers."""
    text = json.dumps(document)
    for shown, real in _examples(names).items():
        text = text.replace(json.dumps(shown), json.dumps(real))
    ready: dict[str, Any] = json.loads(text)
    schemas = ready["components"]["schemas"]
    for name, values in _bodies(names).items():
        for key, texts in values.items():
            _limit(schemas[name]["properties"], key, texts)
    for name in _answered(ready):
        if "properties" in schemas[name]:
            schemas[name].setdefault("additionalProperties", False)
    for method, path, operation in _operations(ready):
        for parameter in operation.get("parameters", ()):
            _limit(parameter, "schema", _known(method, path, parameter, names))
        if method == "delete" or path.endswith("/delete"):
            _delete_few(operation, schemas, names)
        elif path.endswith("/create"):
            _rename(operation, {names.models[-1]: "main.default.fresh", names.scopes[-1]: "fresh"})
    return ready


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield method, path, operation


def _rename(operation: dict[str, Any], names: dict[str, str]) -> None:
    """Say other names in a call's example."""
    for media in operation.get("requestBody", {}).get("content", {}).values():
        text = json.dumps(media["examples"])
        for old, new in names.items():
            text = text.replace(json.dumps(old), json.dumps(new))
        media["examples"] = json.loads(text)


def _delete_few(operation: dict[str, Any], schemas: dict[str, Any], names: Names) -> None:
    """Let a call that deletes take only some of the names, its example too."""
    for media in operation.get("requestBody", {}).get("content", {}).values():
        schema = copy.deepcopy(schemas[media["schema"]["$ref"].rpartition("/")[2]])
        for kept in schema["properties"].values():
            if "enum" in kept:
                kept["enum"] = kept["enum"][-TO_DELETE:]
        media["schema"] = schema
    _rename(operation, {known[-1]: known[0] for known in (names.models, names.scopes)})


def _examples(names: Names) -> dict[str, str]:
    """What the document's examples say, to what exists."""
    return {
        "main.default.detector": names.models[-1],
        "/Volumes/main/default/data/big.bin": f"/{_file(0)}",
        "/Volumes/main/default/data/small.bin": f"/{_file(1)}",
        "0123456789abcdef": names.tokens[0],
        "someone@example.com": "conformer",
        "…": names.session,
        "models": names.scopes[-1],
        "4711": names.users[-1],
    }


def _known(method: str, path: str, parameter: dict[str, Any], names: Names) -> list[str]:
    """The values of a parameter that exist; few of them to delete."""
    files = [_file(number) for number in range(PIECES)]
    known = {
        "public_id": names.endpoint_ids,
        "entity": ["main"],
        "version": ["1", "2", "3"],
        "alias": ["champion"],
        "filter": [f"name='{names.models[0]}'", "run_id = 'r'"],
        "scope": names.scopes,
        "key": ["key"],
        "principal": ["conformer"],
        "user_id": names.users,
        "group_id": names.groups,
        "link": [names.links["upload" if method == "put" else "download"]],
        "session_token": [names.session],
        "path": files if parameter["in"] == "path" else [f"/{file}" for file in files],
    }
    if path.startswith("/serving-endpoints/"):
        known["name"] = [WAITING]
    elif "serving-endpoints" in path:
        known["name"] = names.endpoints
    elif "/unity-catalog/" in path or "registered-models" in path:
        known["name"] = names.models
    elif "/previews/" in path:
        known["name"] = ["throughput_optimized"]
    if "/directories/" in path:
        known["path"] = [f"{FOLDER}/new" if method in {"put", "delete"} else FOLDER]
    elif method == "put":
        known["path"] = [f"{FOLDER}/new{number}.bin" for number in range(PIECES)]
    found = known.get(parameter["name"], [])
    is_many = len(found) >= PIECES
    return found[:TO_DELETE] if method == "delete" else found[TO_DELETE * is_many :]


def _bodies(names: Names) -> dict[str, dict[str, list[str]]]:
    models = {"name": names.models[::-1]}  # those that are deleted come last
    versions = models | {"version": ["1", "2", "3"]}
    aliases = models | {"alias": ["champion"]}
    files = {"path": [f"/{_file(0)}"]}
    scopes = {"scope": names.scopes[::-1]}
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
        "Stage": {"model_name": names.models[::-1], "model_version": ["1"]},
        "FileLocation": files,
        "PartUrls": files | {"session_token": [names.session]},
        "TokenDeleteInput": {"token_id": names.tokens},
        "ServedEntityInput": {"entity_name": names.models, "entity_version": ["1", "@champion"]},
        "ServedModelInput": {"model_name": names.models, "model_version": ["1", "@champion"]},
        "GrantInput": {"user_name": ["conformer"], "group_name": ["users", "admins"]},
        "ScimReference": {"value": names.users},
        "ScopeInput": scopes,
        "KeyInput": scopes | {"key": ["key"]},
        "PutInput": scopes,
        "PutAclInput": scopes | {"principal": ["conformer", "users"]},
        "PrincipalInput": scopes | {"principal": ["conformer", "users"]},
    }


def _limit(place: dict[str, Any], key: str, known: list[str]) -> None:
    if known:
        kept = {k: v for k, v in place[key].items() if k in {"default", "description"}}
        place[key] = {"type": "string", "enum": known, **kept}


def _answered(document: dict[str, Any]) -> set[str]:
    """Names of the components that answers are made of, and no request."""
    schemas = document["components"]["schemas"]
    operations = [operation for _, _, operation in _operations(document)]
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


def without_success(calls: Path, document: dict[str, Any]) -> list[str]:
    """The operations that no recorded call (a HAR file) brought to a 2xx."""
    succeeded = [
        (entry["request"]["method"], urlparse(entry["request"]["url"]).path)
        for entry in json.loads(calls.read_text())["log"]["entries"]
        if entry["response"]["status"] < 300
    ]
    return [
        f"{method.upper()} {path}"
        for method, path, _ in _operations(document)
        if not any(
            method.upper() == called and re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), at)
            for called, at in succeeded
        )
    ]


CONFIG = Path(__file__).with_name("schemathesis.toml")
