"""A gateway on a real port, what the control plane would publish for it, and a stand-in replica."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import redis
import requests
import uvicorn

from portal.launcher.patience import PatientProtocol
from serving import bus
from serving.gateway.app import GatewaySettings, create_gateway
from serving.spec import Backend, Principal, Route, RouteEntity, RouteReplica, to_json
from tests.support.shim import load_shim

TOKEN = "dapi-querier"
VECTOR = {
    "inputs": json.dumps(
        [{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 3]}}]
    ),
    "outputs": None,
    "params": None,
}


class GatewayServer:
    """Uvicorn with the gateway, in a thread with its own loop."""

    def __init__(self, redis_url: str, *, head_timeout_s: float = 60.0, **settings: Any) -> None:
        application = create_gateway(GatewaySettings(redis_url=redis_url, **settings))
        self.lane = application.lane
        protocol = type("Protocol", (PatientProtocol,), {"head_timeout_s": head_timeout_s})
        config = uvicorn.Config(
            application,
            host="127.0.0.1",
            port=0,
            log_level="warning",
            lifespan="on",
            proxy_headers=False,
            loop="uvloop",
            http=protocol,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def start(self) -> None:
        """Start it and wait until it listens."""
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the gateway did not start")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop it."""
        self._server.should_exit = True
        self._thread.join(timeout=10)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        body: Any,
        *,
        endpoint: str = "shoal",
        token: str | None = TOKEN,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30,
        entity: str | None = None,
    ) -> requests.Response:
        """One scoring request."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        path = f"/served-models/{entity}/invocations" if entity else "/invocations"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = f"{self.url}/serving-endpoints/{endpoint}{path}"
        return requests.post(url, data=data, headers=sent, timeout=timeout_s)

    def ask_all(self, bodies: Sequence[Any], endpoint: str = "shoal") -> list[requests.Response]:
        """Scoring requests at once; their answers in order."""
        return run_together([partial(self.ask, body, endpoint=endpoint) for body in bodies])


def entity(*addresses: str, name: str = "model-1", **changes: Any) -> RouteEntity:
    """A served entity on Triton with replicas at these addresses."""
    values: dict[str, Any] = {
        "name": name,
        "entity_name": "main.default.model",
        "entity_version": "1",
        "traffic_percentage": 100,
        "backend": Backend.TRITON,
        "signature": VECTOR,
        "max_batch_size": 32,
        "max_in_flight": 64,
        "replicas": tuple(RouteReplica(replica_id=a[-5:], address=a) for a in addresses),
    }
    return RouteEntity(**values | changes)


class Publisher:
    """The control plane, as far as the gateway sees it."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def begin(self) -> None:
        """A querier with a token, and the word that all is published."""
        self.principal(TOKEN, user_id="querier")
        self._client.set(bus.PUBLISHED, "1")
        self._tell("all")

    def _tell(self, change: str) -> None:
        self._client.set(bus.REVISION, uuid.uuid4().hex)
        if change:
            self._client.publish(bus.CHANGES, change)

    def principal(self, token: str, **changes: Any) -> None:
        """Publish a token."""
        values: dict[str, Any] = {
            "user_id": token,
            "user_name": token,
            "is_admin": False,
            "groups": (),
            "expires_at": None,
        }
        sha256 = hashlib.sha256(token.encode()).hexdigest()
        self._client.hset(bus.PRINCIPALS, sha256, to_json(Principal(**values | changes)))
        self._tell(f"principal:{sha256}")

    def revoke(self, token: str, *, silently: bool = False) -> None:
        """Remove a token, maybe without the message that tells of it."""
        sha256 = hashlib.sha256(token.encode()).hexdigest()
        self._client.hdel(bus.PRINCIPALS, sha256)
        self._tell("" if silently else f"principal:{sha256}")

    def route(self, *entities: RouteEntity, endpoint: str = "shoal", **changes: Any) -> None:
        """Publish an endpoint."""
        values: dict[str, Any] = {
            "endpoint_id": f"id-of-{endpoint}",
            "endpoint_name": endpoint,
            "message": "",
            "is_stopped": False,
            "request_timeout_s": 20.0,
            "entities": entities,
            "user_levels": {"querier": "CAN_QUERY"},
            "group_levels": {},
        }
        self._client.hset(bus.ROUTES, endpoint, to_json(Route(**values | changes)))
        self._tell(f"route:{endpoint}")

    def remove_route(self, endpoint: str = "shoal") -> None:
        """Remove an endpoint."""
        self._client.hdel(bus.ROUTES, endpoint)
        self._tell(f"route:{endpoint}")


def wait_until_answered(
    gateway: GatewayServer, status: int = 200, *, timeout_s: float = 20, **arguments: Any
) -> requests.Response:
    """Ask until the gateway has heard what was published."""
    deadline = time.monotonic() + timeout_s
    arguments.setdefault("body", {"inputs": [[1, 2, 3]]})
    while True:
        response = gateway.ask(**arguments)
        if response.status_code == status:
            return response
        assert time.monotonic() < deadline, (response.status_code, response.text)
        time.sleep(0.02)


def wait_until_routed(gateway: GatewayServer, endpoint: str = "shoal") -> None:
    """Send nothing until the gateway has heard of the endpoint and refuses that."""
    wait_until_answered(gateway, 400, body=b"", endpoint=endpoint)


# ---------------------------------------------------------------- a stand-in for faults


class StandInReplica:
    """Speaks Triton's protocol; doubles its input unless `behave` says otherwise.

    `behave(handler, rows)` may answer itself and return True, or return False for the usual; the
    numbers that it got are `handler.seen`.
    """

    def __init__(self, port: int = 0) -> None:
        self.calls = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.rows: list[int] = []
        self.bodies: list[Any] = []  # of requests in JSON, as MLflow's server gets them
        self.texts: list[bytes] = []  # of others that it gets
        self.factor = 2.0
        self.behave: Callable[[Any, int], bool] = lambda handler, rows: False
        self._lock = threading.Lock()
        replica = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet, else the second waits for 40 ms

            def do_POST(self) -> None:
                replica.serve(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self.port}"

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        raw = handler.rfile.read(int(handler.headers["Content-Length"]))
        with self._lock:
            self.calls += 1
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            length = int(handler.headers["Inference-Header-Content-Length"] or 0)
            shape = [1]
            if length:
                shape = json.loads(raw[:length])["inputs"][0]["shape"]
            elif handler.headers["Content-Type"] == "application/json":
                self.bodies.append(json.loads(raw))
            else:
                self.texts.append(raw)
            self.rows.append(shape[0])
            data = np.frombuffer(raw[length:], dtype=np.float32) if length else np.empty(0)
            handler.seen = data  # type: ignore[attr-defined]  # for `behave`
            if self.behave(handler, shape[0]):
                return
            data = data.reshape(shape)
            packed = load_shim().pack_answer("ndarray", [], [data * np.float32(self.factor)])
            answer = json.dumps({"outputs": [{"name": "out"}]}).encode()
            respond(handler, 200, answer + bytes(packed), len(answer))
        finally:
            with self._lock:
                self.in_flight -= 1

    def stop(self) -> None:
        """Stop listening; connections stay as they are."""
        self._server.shutdown()
        self._server.server_close()


def respond(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, header_length: int | None = None
) -> bool:
    """Send an answer; gives True for `behave`."""
    handler.send_response(status)
    if header_length is not None:
        handler.send_header("Inference-Header-Content-Length", str(header_length))
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
    handler.wfile.flush()
    return True


def drop(handler: BaseHTTPRequestHandler) -> bool:
    """Hang up without an answer, as a killed server does."""
    handler.close_connection = True
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # a reset
    handler.connection.close()
    return True


def slow(seconds: float) -> Callable[[Any, int], bool]:
    """Answer as usual, after a while."""

    def behave(handler: Any, rows: int) -> bool:
        time.sleep(seconds)
        return False

    return behave


def triton_error(status: int, message: str) -> Callable[[Any, int], bool]:
    """Answer with an error of Triton's."""
    return lambda handler, rows: respond(handler, status, json.dumps({"error": message}).encode())


class Once:
    """Behaves so for the first calls, then as usual."""

    def __init__(self, behave: Callable[[Any, int], bool], times: int = 1) -> None:
        self.behave, self.left = behave, times

    def __call__(self, handler: Any, rows: int) -> bool:
        self.left -= 1
        return self.left >= 0 and self.behave(handler, rows)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_together(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run blocking calls at once; gives their results in order."""
    with ThreadPoolExecutor(max_workers=len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]
