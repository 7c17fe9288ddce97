"""A portal in processes of its own: web servers, and workers when asked, with its own data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests

from portal.launcher.stack import listen
from tests.support.databases import Database
from tests.support.valkey import Valkey

ROOT = Path(__file__).resolve().parent.parent.parent


class LivePortal:
    """The launcher's web process on a free port, over a new database."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.url = ""
        self.database = Database(data)
        self.valkey = Valkey(data / "valkey.sock")
        self.variables = os.environ | {
            "SHOAL_DATA_DIR": str(data),
            "REDIS_URL": self.valkey.url,
            "DATABASE_URL": self.database.url,
            "SHOAL_LOG_LEVEL": "WARNING",
        }
        self.web: subprocess.Popen[bytes] | None = None
        self.others: list[subprocess.Popen[bytes]] = []  # all that run

    def start(self) -> None:
        """Make the database and start the web server."""
        self.valkey.start()
        self.manage("migrate", "-v", "0")
        self.url, self.web = self.start_web()

    @property
    def port(self) -> int:
        """Where the first web process listens."""
        return int(self.url.rpartition(":")[2])

    def start_web(self) -> tuple[str, subprocess.Popen[bytes]]:
        """Start a web process on a port of its own; gives its address."""
        with listen("127.0.0.1", 0) as sock:
            url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            web = self._run("portal.launcher.web", str(sock.fileno()), pass_fds=(sock.fileno(),))
        self.others.append(web)
        for _ in range(600):
            with suppress(requests.ConnectionError, requests.Timeout):
                requests.get(f"{url}/.well-known/databricks-config", timeout=5)
                return url, web
            time.sleep(0.1)
        raise RuntimeError("the web server does not start")

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a Celery worker for all queues."""
        worker = self._run(
            *("celery", "-A", "portal", "worker", "-Q", "default,builds", "-c", "2"),
            *("-l", "warning", "--without-gossip", "--without-mingle"),
        )
        self.others.append(worker)
        return worker

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process with all that it started, without notice."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Stop everything that was started."""
        for process in self.others:
            self.kill(process)
        self.valkey.kill()
        self.database.drop()

    def manage(self, *arguments: str, stdin: str = "") -> str:
        """Run a management command; gives what it prints."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.variables,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def token(self, user: str, *, is_admin: bool = False) -> str:
        """A token of a user who is made if need be."""
        code = (
            "from portal.accounts.models import User; "
            "from django.contrib.auth.models import Group; "
            f"u, _ = User.objects.get_or_create(username={user!r}); "
            f"{is_admin} and u.groups.add(Group.objects.get_or_create(name='admins')[0])"
        )
        self.manage("shell", "-v", "0", "-c", code)
        return self.manage("create_token", user).strip()

    def row(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """A row of the database; `?` stands for a value."""
        return self.database.row(sql, *values)

    def memory_bytes(self, field: str = "VmRSS") -> int:
        """What the web server holds in memory."""
        assert self.web is not None
        for line in Path(f"/proc/{self.web.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise LookupError(field)

    def _run(
        self, module: str, *arguments: str, pass_fds: tuple[int, ...] = ()
    ) -> subprocess.Popen[bytes]:
        log = (self.data / f"{module}.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=self.variables,
                stdout=log,
                stderr=log,
                pass_fds=pass_fds,
                start_new_session=True,
            )


class Files:
    """Speaks to the live portal as one user."""

    def __init__(self, portal: LivePortal, token: str) -> None:
        self.portal, self.value = portal, token
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {token}"

    def __call__(self, method: str, path: str, **options: Any) -> requests.Response:
        options.setdefault("timeout", 60)
        return self.session.request(method, f"{self.portal.url}{path}", **options)

    def file(self, method: str, path: str, **options: Any) -> requests.Response:
        """A call on a file."""
        return self(method, f"/api/2.0/fs/files{path}", **options)

    def registry(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """A call of the registry that succeeds."""
        response = self(method, f"/api/2.0/mlflow/unity-catalog/{path}", json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def new_version(self, name: str) -> str:
        """A version that waits for its files; gives its folder."""
        created = self(
            "POST", "/api/2.0/mlflow/unity-catalog/registered-models/create", json={"name": name}
        )
        assert created.status_code in {200, 409}, created.text
        body = self.registry("POST", "model-versions/create", name=name, source="s")
        return str(body["model_version"]["storage_location"])
