"""The peers: how each is started and asked, and how all of it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import requests

from tests.bench.bodies import BINARY, SCORING, TENSORS, Form, Site, WrongAnswer
from tests.bench.workloads import example
from tests.support.client import ROOT
from tests.support.stack import free_port

MAX_BATCH = 64
WINDOW_MS = 3
START_LIMIT_S = 120
STOP_LIMIT_S = 20
LOG_SHOWN = 1500  # characters of a peer's last words


class DidNotStart(Exception):
    """A peer ended or kept silent before its first answer; says its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a peer is started with.

    Attributes:
        environment: Its virtual environment.
        folder: For its files; empty.
    """

    environment: Path
    folder: Path
    port: int
    copies: int

    def module(self, name: str, *arguments: str) -> list[str]:
        """A command that runs one of the peers' scripts."""
        python = str(self.environment / "bin" / "python")
        return [python, "-m", f"tests.bench.peers.{name}", *arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A server that Shoal is held against.

    Attributes:
        package: Whose version is reported.
        command: Gives the command line; may write files into the folder.
        path: Where it takes predictions.
    """

    label: str
    package: str
    command: Callable[[Start], list[str]]
    path: str
    form: Form = SCORING

    def version(self, environment: Path) -> str:
        """The installed version; empty when it cannot be told."""
        packages = [str(p) for p in environment.glob("lib/python*/site-packages")]
        found = metadata.Distribution.discover(name=self.package, path=packages)
        return next((distribution.version for distribution in found), "")


def _bentoml(start: Start) -> list[str]:
    service = "tests.bench.peers.bentoml_server:Workload"
    program = str(start.environment / "bin" / "bentoml")
    return [program, "serve", service, "--host", "127.0.0.1", "--port", str(start.port)]


def _mlserver(start: Start) -> list[str]:
    server = {
        "host": "127.0.0.1",
        "http_port": start.port,
        "grpc_port": free_port(),
        "metrics_port": free_port(),
        "parallel_workers": start.copies,
        "debug": False,  # which would log every request
    }
    model = {
        "name": "model",
        "implementation": "tests.bench.peers.mlserver_runtime.Workload",
        "max_batch_size": MAX_BATCH,
        "max_batch_time": WINDOW_MS / 1000,
    }
    (start.folder / "settings.json").write_text(json.dumps(server))
    (start.folder / "model-settings.json").write_text(json.dumps(model))
    return [str(start.environment / "bin" / "mlserver"), "start", str(start.folder)]


PEERS = {
    "litserve": Peer(
        label="LitServe",
        package="litserve",
        command=lambda start: start.module("litserve_server"),
        path="/predict",
    ),
    "mlserver": Peer(
        label="MLServer",
        package="mlserver",
        command=_mlserver,
        path="/v2/models/model/infer",
        form=TENSORS,
    ),
    "bentoml": Peer(label="BentoML", package="bentoml", command=_bentoml, path="/invocations"),
    "ray": Peer(
        label="Ray Serve",
        package="ray",
        command=lambda start: start.module("ray_server"),
        path="/invocations",
    ),
    "mlflow": Peer(
        label="mlflow models serve",
        package="mlflow",
        command=lambda start: start.module("mlflow_server", str(start.folder / "model")),
        path="/invocations",
    ),
    "triton": Peer(
        label="Triton directly",
        package="nvidia-pytriton",
        command=lambda start: start.module("triton_server", str(start.folder)),
        path="/v2/models/model/infer",
        form=BINARY,
    ),
}


@contextmanager
def running(
    name: str, environment: Path, workload: str, folder: Path, *, copies: int, threads: int
) -> Iterator[Site]:
    """The peer serving this workload, from its first answer on; stopped with all it started.

    Raises:
        DidNotStart: It does not answer.
        WrongAnswer: It answers with an error.
    """
    peer, mark = PEERS[name], f"BENCH_MARK={uuid.uuid4()}"
    start = Start(environment=environment, folder=folder, port=free_port(), copies=copies)
    variables = os.environ | {
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "BENCH_WORKLOAD": workload,
        "BENCH_PORT": str(start.port),
        "BENCH_COPIES": str(copies),
        "BENCH_THREADS": str(threads),
        "BENCH_MAX_BATCH": str(MAX_BATCH),
        "BENCH_WINDOW_MS": str(WINDOW_MS),
        "BENTOML_DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
        **dict([mark.split("=")]),
    }
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            peer.command(start),
            cwd=folder,
            env=variables,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        site = Site(url=f"http://127.0.0.1:{start.port}{peer.path}", form=peer.form)
        _await_first_answer(site, workload, process, log)
        yield site
    finally:
        _stop(process, mark)


def _await_first_answer(
    site: Site, workload: str, process: subprocess.Popen[bytes], log: Path
) -> None:
    end, why = time.monotonic() + START_LIMIT_S, ""
    while time.monotonic() < end and process.poll() is None:
        try:
            site.ask(example(workload))
        except (requests.RequestException, WrongAnswer) as exc:  # some answer before they serve
            why = str(exc)
            time.sleep(0.5)
        else:
            return
    last = log.read_text(errors="replace")[-LOG_SHOWN:]
    raise DidNotStart(f"no answer ({why or 'it ended'}); its last words:\n{last}")


def _stop(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ask it to end, then end whatever it left behind, in whichever session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_LIMIT_S)
    for pid in _marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _marked(mark: str) -> list[int]:
    """The processes that were started with this mark in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(folder.name)
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found
