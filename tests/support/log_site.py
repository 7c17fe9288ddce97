"""The portal in a process of its own, with one endpoint whose replicas' logs a test writes.

Run as a program it makes the rows in its own database and tells their names as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import requests

from serving.replica.log_store import LogStore

ROOT = Path(__file__).resolve().parents[2]
USERNAME = "reader"
PASSWORD = "correct horse"
ENDPOINT = "bert"


class LogSite:
    """A web process on a database, a data directory and a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {
            "SHOAL_DATA_DIR": str(folder),
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "PYTHONPATH": str(ROOT),
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.replicas: list[str] = []

    def start(self) -> None:
        """Make the rows, start the web process, wait until it answers."""
        made = self._run("-m", "tests.support.log_site")
        self.replicas = json.loads(made.splitlines()[-1])
        self._serve(0)

    def restart(self, meanwhile: Callable[[], object]) -> None:
        """Kill the web process, do something, and start it again on the same port."""
        self.stop()
        meanwhile()
        self._serve(int(self.url.rpartition(":")[2]))

    def _serve(self, port: int) -> None:
        listener = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "portal.launcher.web", str(listener.fileno())],
            cwd=ROOT,
            env=self.environment,
            pass_fds=[listener.fileno()],
        )
        listener.close()
        for _ in range(300):
            try:
                requests.get(f"{self.url}/login/", timeout=30)
                return
            except requests.ConnectionError:
                time.sleep(0.1)
        raise RuntimeError("the web process does not answer")

    def stop(self) -> None:
        """End the web process at once: open streams would make it wait."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def log(self, replica_id: str) -> LogStore:
        """The replica's log, to be written."""
        return LogStore(self.folder / "replicas" / replica_id)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def make_rows() -> list[str]:
    """One user, one endpoint with two live replicas and two that stopped; gives their ids."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from portal.endpoints.models import Replica
    from portal.endpoints.states import ReplicaState
    from tests.support.factories import ReplicaFactory, UserFactory, live_endpoint

    user = UserFactory(username=USERNAME)
    live_endpoint(endpoint_name=ENDPOINT, creator=user)
    first = Replica.objects.get()
    Replica.objects.update(public_id="g7zw9")
    both = {"entity": first.entity, "deployment": first.deployment}
    ReplicaFactory(public_id="x0k2p", proven=True, **both)
    for ended in ("old11", "hours"):
        ReplicaFactory(
            public_id=ended, state=ReplicaState.STOPPED, exit_code=0, is_wanted=False, **both
        )
    return list(Replica.objects.values_list("public_id", flat=True))


def main() -> None:
    """Make the rows and tell the replicas' ids."""
    import django

    django.setup()
    sys.stdout.write(json.dumps(make_rows()) + "\n")


if __name__ == "__main__":
    main()
