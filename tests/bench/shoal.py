"""Our side: a Shoal of its own, with an endpoint for each workload that batches as tuning chose."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.bodies import BINARY, SCORING, Site
from tests.bench.results import Say
from tests.support.client import ROOT, SMALL, client_python, client_variables
from tests.support.stack import Stack

SERVE_LIMIT_S = 600
READY_LIMIT_S = 120
NOT_IN_FORCE = "threads_per_instance"  # the workloads set it themselves, in every server


class DidNotServe(Exception):
    """A workload could not be registered, or its endpoint is not behind Triton."""


class Shoal:
    """A running Shoal with the workloads' endpoints."""

    def __init__(self, stack: Stack, say: Say, *, threads: int) -> None:
        self._stack = stack
        self._say = say
        self._threads = threads

    def serve(self, workload: str) -> None:
        """Register the workload with the mlflow client, and wait for its endpoint.

        Raises:
            DidNotServe: It cannot be registered, or does not end up behind Triton.
        """
        name = f"bench-{workload}"
        if not self._stack.api("GET", f"/api/2.0/serving-endpoints/{name}").ok:
            begin = time.monotonic()
            version = self._register(workload)
            self._say(f"{workload} is registered after {time.monotonic() - begin:.0f} s")
            self._stack.create(
                name,
                version,
                f"main.bench.{workload}",
                environment_vars={"BENCH_THREADS": str(self._threads)},
            )
        state = self._stack.wait_until_settled(name, SERVE_LIMIT_S)["state"]
        if state["config_update"] == "UPDATE_FAILED":
            raise DidNotServe(f"{name} failed: {state['config_update_message']}")
        end = time.monotonic() + READY_LIMIT_S  # a kept endpoint's replicas may have to start
        while not self._is_served(name):
            if time.monotonic() > end:
                raise DidNotServe(f"{name}: {self._entity(name)['triton']['message']}")
            time.sleep(0.5)

    def site(self, workload: str) -> Site:
        """Where the workload takes MLflow's scoring requests."""
        path = f"/serving-endpoints/bench-{workload}/invocations"
        return Site(url=self._stack.url + path, form=SCORING, headers=self._headers)

    def binary_site(self, workload: str) -> Site:
        """Where the workload takes binary tensors."""
        path = f"/serving-endpoints/bench-{workload}/v2/models/model/infer"
        return Site(url=self._stack.url + path, form=BINARY, headers=self._headers)

    def settings(self, workload: str) -> str:
        """The batching in force and where each value comes from, in one line."""
        in_force = self._entity(f"bench-{workload}")["batching_in_force"]
        return ", ".join(
            f"`{key}` {field['value']} ({field['source']})"
            for key, field in in_force.items()
            if key != NOT_IN_FORCE
        )

    def _is_served(self, name: str) -> bool:
        if self._stack.endpoint(name)["state"]["ready"] != "READY":
            return False
        status: str = self._entity(name)["triton"]["status"]
        return status == "ACTIVE"

    def _entity(self, name: str) -> dict[str, Any]:
        """The endpoint's only served entity."""
        entity: dict[str, Any] = self._stack.endpoint(name)["config"]["served_entities"][0]
        return entity

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._stack.token}"}

    def _register(self, workload: str) -> str:
        """The version's number."""
        work = self._stack.folder / f"register-{workload}"
        work.mkdir(exist_ok=True)
        tracking = {
            "MLFLOW_TRACKING_URI": f"file:{work}/mlruns",  # mlflow-skinny has no SQL store
            "MLFLOW_ALLOW_FILE_STORE": "true",
        }
        python, script = client_python((*SMALL, "torch")), ROOT / "tests/bench/register.py"
        done = subprocess.run(
            [str(python), str(script), workload, f"main.bench.{workload}"],
            cwd=work,
            env=client_variables(self._stack.url, self._stack.token, work) | tracking,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise DidNotServe(f"{workload} could not be registered:\n{done.stderr[-1500:]}")
        return done.stdout.split("VERSION ")[1].split()[0]


@contextmanager
def running(folder: Path, say: Say, *, threads: int) -> Iterator[Shoal]:
    """A Shoal on a free port with its data in this folder, the preview on; stopped at the end.

    A folder that was used before holds the workloads and their profiles: they are not made anew.
    """
    say("making the client's environment, if it is not there")
    client_python((*SMALL, "torch"))
    stack = Stack(folder)
    stack.environment.pop("SHOAL_PROFILE_BUDGET_S", None)  # tests hurry; users wait for the whole
    begin = time.monotonic()
    stack.start()
    try:
        stack.manage("preview", "throughput_optimized", "on")
        say(f"Shoal answers after {time.monotonic() - begin:.0f} s")
        yield Shoal(stack, say, threads=threads)
    finally:
        stack.stop()
        stack.database.drop()


def serve_all(shoal: Shoal, workloads: Sequence[str], say: Say) -> dict[str, str]:
    """Serve one after the other; gives why not, for those that could not be served."""
    problems = {}
    for workload in workloads:
        begin = time.monotonic()
        try:
            shoal.serve(workload)
        except (DidNotServe, AssertionError) as exc:
            problems[workload] = str(exc)
            say(f"{workload} is not served: {exc}")
        else:
            say(f"{workload} is READY after {time.monotonic() - begin:.0f} s")
    return problems
