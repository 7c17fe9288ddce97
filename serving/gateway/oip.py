"""The binary road: the Open Inference Protocol at `/serving-endpoints/{name}/v2/...`.

The same tokens, levels, limits, deadlines and retries as for `/invocations`; only the form of
requests and answers differs. `/serving-endpoints/{name}` is the address that `tritonclient.http`
gets, or `/serving-endpoints/{name}/served-models/{served}`. A model's name is `model`, the served
entity's name, or the registered model's; its version is the registered one's.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from serving.errors import DeadlineExceeded, InvalidInput, ReplicaUnavailable, ServingError
from serving.gateway.asgi import Receive, Scope
from serving.gateway.calls import Call
from serving.gateway.dispatch import DEFAULT_MESSAGE, Dispatcher
from serving.gateway.entrypoint import PassedAnswer
from serving.gateway.errors import EndpointDoesNotExist, EndpointStopped, UnknownPath
from serving.gateway.http import Head, Header, Watch, read_body, too_large
from serving.gateway.meter import Measured
from serving.gateway.oip_about import config_of, metadata_of, server_metadata, statistics_of
from serving.gateway.oip_form import OpenInferenceForm
from serving.gateway.replies import TIMED_OUT
from serving.gateway.routing import LiveEntity, LiveRoute
from serving.permissions import Action
from serving.protocol.oip.request import InferRequest, NotOffered, read_request
from serving.spec import Principal

PREFIX = "v2"
ANY_MODEL = "model"
SMALL_BYTES = 64 * 1024
"""Up to here a body is unpacked and read where it arrives; a thread costs more."""

_JSON = (b"content-type", b"application/json")
_NOT_PACKED = frozenset((b"", b"identity"))
_NOT_OFFERED = {
    "repository": "Models are registered and deployed, not loaded by this protocol.",
    "systemsharedmemory": "Shared memory is not offered: send tensors in the request's body.",
    "cudasharedmemory": "Shared memory is not offered: send tensors in the request's body.",
    "trace": "Tracing is not offered; the endpoint's metrics tell where time goes.",
    "logging": "Log settings are not offered; the endpoint's logs are on its page.",
    "generate": "Generation is not offered: use infer.",
    "generate_stream": "Streams are not offered: use infer.",
}


class Reply(NamedTuple):
    """What is sent to the caller with status 200."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    passed: PassedAnswer | None = None  # never: a model's own server does not speak the protocol


@dataclass(frozen=True, slots=True)
class Path:
    """A path's parts.

    Attributes:
        served_name: The served entity that the path names before `v2`, if it does.
        words: What follows `v2`.
    """

    endpoint_name: str
    served_name: str | None
    words: tuple[str, ...]


class Door(NamedTuple):
    """What all roads through the gateway share.

    Attributes:
        authenticate: The caller.
        find: The endpoint that the caller may do this to.
        admit: Counts a request against the endpoint's rate limits.
        measure: Counts the request that is answered inside the `with`.
    """

    authenticate: Callable[[Head], Principal]
    find: Callable[[str, Principal, Action], LiveRoute]
    admit: Callable[[LiveRoute, Principal], Awaitable[None]]
    measure: Callable[[str, Watch], Measured]


def is_open_inference(path: str) -> bool:
    """Whether a path belongs to this road; quick, since every request's is asked."""
    if path.endswith("/invocations"):
        return False
    parts = path.split("/", 6)
    return parts[3:4] == [PREFIX] or (parts[3:4] == ["served-models"] and parts[5:6] == [PREFIX])


def error_fields(error: ServingError) -> dict[str, str]:
    """What this protocol's clients look for in the body of an error."""
    return {"error": error.message}


def quick_form(
    route: LiveRoute, model: str, headers: Iterable[Header], raw: bytes
) -> OpenInferenceForm | None:
    """A small infer request as it may take the gateway's short way.

    None where it may not: it is packed, or brings a deadline of its own.

    Raises:
        ServingError: In one of its kinds, as on the usual way.
    """
    header_length, encoding = _framing(headers)
    if encoding not in _NOT_PACKED:
        return None
    candidates(route, None, model, "")
    request = read_request(raw, header_length)
    return OpenInferenceForm(request, model) if request.timeout_s is None else None


class OpenInference:
    """Answers the protocol's requests."""

    def __init__(self, door: Door, dispatcher: Dispatcher, max_request_bytes: int) -> None:
        self._door = door
        self._dispatcher = dispatcher
        self._max_request_bytes = max_request_bytes

    async def answer(self, scope: Scope, receive: Receive, head: Head, watch: Watch) -> Reply:
        """The answer to one request.

        Raises:
            ServingError: In one of its kinds; see `serving.errors` and `serving.gateway.errors`.
        """
        path, method = _read_path(scope["path"]), str(scope["method"])
        principal = self._door.authenticate(head)
        match method, path.words:
            case "POST", ("models", model, "infer"):
                version = ""
            case "POST", ("models", model, "versions", version, "infer"):
                pass
            case "GET", _:
                route = self._door.find(path.endpoint_name, principal, Action.SEE)
                return await self._tell(route, path, watch)
            case _:
                raise _unknown(method, scope["path"], path.words)
        route = self._door.find(path.endpoint_name, principal, Action.QUERY)
        with self._door.measure(route.spec.endpoint_id, watch) as measured:
            await self._door.admit(route, principal)
            raw = await read_body(receive, head.content_length, self._max_request_bytes)
            watch.begin_answer(route.spec.request_timeout_s)
            entity_name = _entity_name(route, path.served_name, model, version)
            request = await self._read(scope, raw)
            form = OpenInferenceForm(request, model)
            call = measured.begin(Call(path.endpoint_name, entity_name, raw, form=form))
            try:
                async with asyncio.timeout(request.timeout_s):
                    outcome = await self._dispatcher.answer(call)
            except TimeoutError as exc:
                raise DeadlineExceeded(TIMED_OUT) from exc
        headers = (
            *form.headers,
            (b"served-model-name", outcome.entity_name.encode()),
            (b"server-timing", outcome.server_timing(watch.elapsed_s)),
        )
        return Reply(outcome.body, headers)

    async def _read(self, scope: Scope, raw: bytes) -> InferRequest:
        """The request, unpacked and read."""
        header_length, encoding = _framing(scope["headers"])

        def read() -> InferRequest:
            body = unpack(raw, encoding, self._max_request_bytes)
            return read_request(body, header_length)

        json_bytes = len(raw) if header_length is None else header_length
        is_small = json_bytes <= SMALL_BYTES and encoding in _NOT_PACKED
        return read() if is_small else await asyncio.to_thread(read)

    # ---------------------------------------------------------------- what there is

    async def _tell(self, route: LiveRoute, path: Path, watch: Watch) -> Reply:
        match path.words:
            case ():
                return _json(server_metadata())
            case ("health", "live"):
                return Reply(b"", ())
            case ("health", "ready"):
                _require_ready(route, list(route.entities.values()))
                return Reply(b"", ())
            case ("models", "stats"):
                chosen = list(route.entities.values())
                return await self._stats(route, chosen, watch)
            case ("models", model, *rest):
                version = ""
                if rest[:1] == ["versions"] and len(rest) > 1:
                    version, rest = rest[1], rest[2:]
                return await self._tell_of_model(route, path, model, version, rest, watch)
        raise _unknown("GET", f"/{'/'.join((PREFIX, *path.words))}", path.words)

    async def _tell_of_model(
        self,
        route: LiveRoute,
        path: Path,
        model: str,
        version: str,
        rest: Sequence[str],
        watch: Watch,
    ) -> Reply:
        entities = candidates(route, path.served_name, model, version)
        match rest:
            case []:
                return _json(metadata_of(model, [entity.spec for entity in entities]))
            case ["ready"]:
                _require_ready(route, entities)
                return Reply(b"", ())
            case ["config"]:
                return _json(config_of(model, entities[0].spec))
            case ["stats"]:
                return await self._stats(route, entities, watch)
        raise _unknown("GET", f"/{'/'.join((PREFIX, *path.words))}", path.words)

    async def _stats(self, route: LiveRoute, entities: Sequence[LiveEntity], watch: Watch) -> Reply:
        watch.begin_answer(route.spec.request_timeout_s)
        _require_ready(route, entities)
        return _json({"model_stats": [await statistics_of(entity) for entity in entities]})


def _framing(headers: Iterable[Header]) -> tuple[int | None, bytes]:
    """How long the JSON at a body's start is, None without binary data; and how it is packed."""
    header_length: int | None = None
    encoding = b""
    for name, value in headers:
        if name == b"inference-header-content-length":
            if not value.isdigit():
                raise InvalidInput("Inference-Header-Content-Length has to be a whole number.")
            header_length = int(value)
        elif name == b"content-encoding":
            encoding = value.strip().lower()
    return header_length, encoding


def unpack(raw: bytes, encoding: bytes, limit: int) -> bytes:
    """A body as it was before the client packed it.

    Raises:
        InvalidInput: It cannot be unpacked, or is larger than `limit` bytes then.
    """
    if encoding in _NOT_PACKED:
        return raw
    if encoding not in {b"gzip", b"deflate"}:
        name = encoding[:40].decode("ascii", "replace")
        raise InvalidInput(f"The content encoding {name} is not known: use gzip or deflate.")
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)  # finds out which of the two it is
    try:
        body = stream.decompress(raw, limit + 1)
    except zlib.error as exc:
        raise InvalidInput("The request body could not be unpacked.") from exc
    if len(body) > limit:
        raise InvalidInput(too_large(limit))
    if not stream.eof:
        raise InvalidInput("The packed request body is cut off.")
    return body


def candidates(
    route: LiveRoute, served_name: str | None, model: str, version: str
) -> list[LiveEntity]:
    """The served entities that a path means, those with most traffic first.

    Raises:
        EndpointDoesNotExist: None.
        EndpointStopped: The endpoint serves none now, because a person stopped it.
        ReplicaUnavailable: It serves none yet.
    """
    if route.spec.is_stopped:
        raise EndpointStopped(
            route.spec.message or f"Endpoint '{route.spec.endpoint_name}' is stopped."
        )
    if not route.entities:
        raise ReplicaUnavailable(route.spec.message or DEFAULT_MESSAGE)
    found = [
        entity
        for entity in route.entities.values()
        if served_name in (None, entity.spec.name)
        and model in (ANY_MODEL, entity.spec.name, entity.spec.entity_name)
        and version in ("", entity.spec.entity_version)
    ]
    if not found:
        words = f" version '{version}'" if version else ""
        raise EndpointDoesNotExist(
            f"Endpoint '{route.spec.endpoint_name}' serves no model '{model}'{words}."
        )
    return sorted(found, key=lambda entity: -entity.spec.traffic_percentage)


def _entity_name(route: LiveRoute, served_name: str | None, model: str, version: str) -> str | None:
    """The served entity that a call is for; None: one by traffic share."""
    found = candidates(route, served_name, model, version)
    return None if len(found) == len(route.entities) else found[0].spec.name


def _require_ready(route: LiveRoute, entities: Sequence[LiveEntity]) -> None:
    if route.spec.is_stopped or not entities or not all(e.replicas for e in entities):
        raise ReplicaUnavailable(route.spec.message or DEFAULT_MESSAGE)


def _read_path(path: str) -> Path:
    parts = path.split("/")
    served_name = parts[4] if parts[3] == "served-models" else None
    words = parts[4:] if served_name is None else parts[6:]
    return Path(parts[2], served_name, tuple(word for word in words if word))


def _unknown(method: str, path: str, words: Sequence[str]) -> ServingError:
    for word in words:
        if word in _NOT_OFFERED:
            return NotOffered(_NOT_OFFERED[word])
    return UnknownPath(f"There is no {method} {path[:200]}.")


def _json(value: object) -> Reply:
    return Reply(orjson.dumps(value), (_JSON,))
