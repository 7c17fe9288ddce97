"""The whole of Shoal in processes of its own, started with the command that users type."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.client import ROOT, client_python, client_variables
from tests.support.databases import Database

ADMIN_PASSWORD = "correct horse battery"
MODEL = "main.default.sum_and_max"


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Stack:
    """`manage.py up` on a data directory and a port of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin_password = ADMIN_PASSWORD
        self.database = Database(folder)
        self.environment = {k: v for k, v in os.environ.items() if k != "REDIS_URL"} | {
            "SHOAL_DATA_DIR": str(folder / "data"),
            "SHOAL_PORT": str(self.port),
            "SHOAL_ADMIN_PASSWORD": ADMIN_PASSWORD,
            "SHOAL_LOG_LEVEL": "INFO",
            "SHOAL_PROFILE_BUDGET_S": "2",  # enough for a curve, too little to load it twice
            **environment,
        }
        if self.database.is_postgresql:
            self.environment["DATABASE_URL"] = self.database.url
        self.process: subprocess.Popen[str] | None = None
        self.token = ""

    # ------------------------------------------------------------ life

    def start(self, command: str = "up") -> None:
        """Start it and wait until it answers."""
        with (self.folder / "console.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", command],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
                text=True,
            )
        self.wait_until(self._answers, 120, "the portal to answer")
        if not self.token:
            self.token = self.manage("create_token", "admin", "--comment", "tests").strip()

    def stop(self) -> None:
        """Ctrl-C, and wait."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(90)
            self.process = None

    def manage(self, *arguments: str) -> str:
        """A management command's output."""
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def console(self) -> str:
        """What the launcher printed."""
        return (self.folder / "console.log").read_text()

    # ------------------------------------------------------------ use

    def api(self, method: str, path: str, **options: Any) -> requests.Response:
        """A call of the REST API or the gateway with the admin's token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return requests.request(method, self.url + path, headers=headers, timeout=60, **options)

    def endpoint(self, name: str) -> dict[str, Any]:
        """GET the endpoint."""
        answer = self.api("GET", f"/api/2.0/serving-endpoints/{name}")
        assert answer.ok, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def query(self, name: str, rows: Any) -> requests.Response:
        """Ask the endpoint."""
        return self.api("POST", f"/serving-endpoints/{name}/invocations", json={"inputs": rows})

    def register(self, name: str = MODEL, *words: str) -> str:
        """Register a version of the tests' model with the real client; its number."""
        work = self.folder / f"client-{time.time_ns()}"
        work.mkdir()
        done = subprocess.run(
            [str(client_python()), str(ROOT / "tests/support/register_model.py"), name, *words],
            cwd=work,
            env=client_variables(self.url, self.token, work)
            # mlflow-skinny has no SQL store
            | {"MLFLOW_TRACKING_URI": f"file:{work}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.split("VERSION ")[1].split()[0]

    def create(self, endpoint: str, version: str, model: str = MODEL, **entity: Any) -> None:
        """Create an endpoint with one served entity: GPU_SMALL, Throughput optimized on."""
        wanted = {
            "name": "current",
            "entity_name": model,
            "entity_version": version,
            "workload_type": "GPU_SMALL",
            "workload_size": "Small",
            "scale_to_zero_enabled": False,
            "throughput_optimized": True,
            **entity,
        }
        body = {"name": endpoint, "config": {"served_entities": [wanted]}}
        answer = self.api("POST", "/api/2.0/serving-endpoints", json=body)
        assert answer.ok, answer.text

    def wait_until_settled(self, endpoint: str, limit_s: float = 180) -> dict[str, Any]:
        """Wait until no update runs; the endpoint."""
        self.wait_until(
            lambda: self.endpoint(endpoint)["state"]["config_update"] != "IN_PROGRESS",
            limit_s,
            f"{endpoint} to settle",
        )
        return self.endpoint(endpoint)

    def wait_until(self, fact: Any, limit_s: float, what: str) -> None:
        """Poll until `fact()` is true."""
        end = time.monotonic() + limit_s
        while not fact():
            assert self.process is None or self.process.poll() is None, self.console()
            assert time.monotonic() < end, f"waited {limit_s} s for {what}\n{self.console()}"
            time.sleep(0.25)

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=5).ok
        except requests.RequestException:
            return False


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One stack for the whole run, the preview on and the tests' model registered as version 1."""
    running = Stack(tmp_path_factory.mktemp("stack"))
    running.start()
    try:
        running.manage("preview", "throughput_optimized", "on")
        assert running.register() == "1"
        yield running
    finally:
        running.stop()
        running.database.drop()
