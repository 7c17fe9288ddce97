"""The NVIDIA Triton Inference Server as the supervisor handles it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

from serving.protocol.plan import plan_inputs
from serving.replica import processes
from serving.replica.environment import server_environment
from serving.replica.http import ask
from serving.replica.ports import Ports
from serving.replica.server import Cause, Command, Health, Say
from serving.spec import BatchingSeen, DeviceKind, Evidence, EvidenceKind, LogLine, ReplicaSpec
from serving.triton import repository, shared_memory
from serving.triton.batching import BatchingMeter
from serving.triton.config import MODEL
from serving.triton.evidence import EvidenceCollector
from serving.triton.home import TritonHome, find_home, server_version
from serving.triton.preflight import check_environment, check_stub
from serving.triton.progress import HangWatch, Work, read_executions

READY_PATH = f"/v2/models/{MODEL}/ready"
STATS_PATH = f"/v2/models/{MODEL}/stats"
QUIET_S = 1.0  # without a new request, after the gateway was told to send no more
POLL_S = 0.1
END_S = 5.0  # an idle server ends within 2-4 s
ASK_TIMEOUT_S = 2.0
LONGEST_CAUSE = 500
VITAL = (
    f" loaded '{MODEL}'",
    f"load '{MODEL}'",
    f"| {MODEL} ",
    "Started HTTPService",
    "failed to ",
)

_LOAD_FAILURE = re.compile(
    rf"failed to load '{MODEL}' version 1: (?:Internal: |Invalid argument: )?(.+)"
)
_START_FAILURE = re.compile(r'"(failed to start \w+ service: .+)"')
_UNHEALTHY = re.compile(r"Stub process '\S+' is not healthy")
_COUNTERS = re.compile(r"^nv_inference_request_(?:success|failure)\{[^}]*\} (\S+)", re.MULTILINE)
_PENDING = re.compile(r"^nv_inference_pending_request_count\{[^}]*\} (\S+)", re.MULTILINE)


class TritonServer:
    """One tritonserver with one model in its Python backend."""

    patience_s = 60.0

    def __init__(self, spec: ReplicaSpec, say: Say) -> None:
        self._spec = spec
        self._say = say
        self._evidence = EvidenceCollector()
        self._meter = BatchingMeter()
        self._prefix = shared_memory.region_prefix(spec.replica_id, spec.directory)
        self._home: TritonHome | None = None
        self._version = "unknown"
        self._region_bytes = shared_memory.LEAST_BYTES
        self._hang = HangWatch(spec.request_timeout_s)

    def prepare(self) -> None:
        """Lay out the model repository, try stub and environment, look for shared memory."""
        self.clean_up()
        home = self._home = find_home(self._spec.triton_home)
        repository.lay_out(self._spec, home)
        variables = self._variables()
        check_stub(repository.wrapper(self._spec.directory), variables)
        check_environment(self._spec.environment, server_environment(self._spec))
        wanted = shared_memory.region_bytes(plan_inputs(self._spec.signature), self._spec.batching)
        self._region_bytes = shared_memory.fitting_region_bytes(
            wanted, self._spec.batching.instance_count
        )
        self._version = server_version(home.server, variables["LD_LIBRARY_PATH"])

    def banner(self) -> Sequence[str]:
        """NGC's containers print these lines before the server; its PyPI build prints none."""
        line = "=" * 29
        lines = [line, "== Triton Inference Server ==", line]
        lines.append(f"Triton Server Version {self._version}")
        if self._spec.device.kind is DeviceKind.CPU_EMULATION:
            lines.append("CPU emulation: this machine has no GPU, so the model runs on the CPU.")
            lines.append("Triton's error about CudaDriverHelper, below, says no more than that.")
        return lines

    def command(self, ports: Ports) -> Command:
        """Give the command, with every address set: Triton's own defaults face the network."""
        spec, home = self._spec, self._home
        assert home is not None  # noqa: S101 - `prepare` comes first
        backend_config = [f"shm-region-prefix-name={self._prefix}"]
        if self._region_bytes > shared_memory.LEAST_BYTES:
            backend_config.append(f"shm-default-byte-size={self._region_bytes}")
        arguments = [
            str(home.server),
            f"--model-repository={repository.repository(spec.directory)}",
            f"--backend-directory={repository.backends(spec.directory)}",
            "--disable-auto-complete-config",  # it would start a stub and throw it away
            f"--http-address={spec.host}",
            f"--http-port={ports.http}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={ports.grpc}",
            f"--metrics-address={spec.host}",
            f"--metrics-port={ports.metrics}",
            "--model-control-mode=explicit",
            f"--load-model={MODEL}",
            f"--exit-timeout-secs={max(1, int(spec.drain_deadline_s))}",
            *(f"--backend-config=python,{setting}" for setting in backend_config),
        ]
        if spec.device.kind is not DeviceKind.CUDA:
            arguments += ["--allow-gpu-metrics=false", "--pinned-memory-pool-byte-size=0"]
        return Command(
            arguments=arguments,
            environment=self._variables(),
            directory=self._work,
        )

    def forget(self) -> None:
        """Drop what was seen of the server that was."""
        self._evidence.forget()
        self._meter = BatchingMeter()
        self._hang = HangWatch(self._spec.request_timeout_s)
        for mark in self._work.glob("busy-*"):
            mark.unlink()

    def is_vital(self, text: str) -> bool:
        """Evidence, and what tells why it ended."""
        return any(word in text for word in VITAL)

    def read(self, line: LogLine) -> None:
        """Collect evidence."""
        self._evidence.read(line)

    def check(self, ports: Ports, *, timeout_s: float) -> Health:
        """Ask for the model's readiness; the first good answers become evidence."""
        answer = ask(self._spec.host, ports.http, READY_PATH, timeout_s=timeout_s)
        if answer is None:
            return Health.SILENT
        if answer.status != 200:
            return Health.NOT_READY
        if not self._evidence.has(EvidenceKind.SERVER_VERSION):
            about = ask(self._spec.host, ports.http, "/v2", timeout_s=timeout_s)
            if about is None or about.status != 200:
                return Health.NOT_READY
            self._note(EvidenceKind.SERVER_VERSION, f"GET /v2 answers 200 {about.body.strip()}")
        if not self._evidence.has(EvidenceKind.MODEL_READY):
            self._note(EvidenceKind.MODEL_READY, f"GET {READY_PATH} answers 200")
        return Health.READY

    def hang(self, ports: Ports, pid: int) -> str | None:
        """Batches that do not end, and requests that nobody takes."""
        metrics = ask(self._spec.host, ports.metrics, "/metrics", timeout_s=ASK_TIMEOUT_S)
        if metrics is None:
            return None  # `check` will see it too
        now = time.monotonic()
        executions = read_executions(self._work, now)
        waiting = sum(float(count) for count in _PENDING.findall(metrics.body))
        stubs = processes.children(pid) if executions or waiting else ()
        work = Work(
            executions=executions,
            waiting=waiting,
            done=sum(float(count) for count in _COUNTERS.findall(metrics.body)),
            cpu_s={stub: processes.cpu_seconds(stub) for stub in stubs},
        )
        return self._hang.judge(work, now)

    def is_proven(self) -> bool:
        """Whether start-up lines and answers were all seen."""
        return self._evidence.has(*EvidenceKind)

    def port(self, ports: Ports) -> int:
        """The one it was given."""
        return ports.http

    def is_listening(self, ports: Ports, pid: int) -> bool:
        """Whether its own process has the port."""
        return processes.is_listening(pid, ports.http)

    def metrics_port(self, ports: Ports) -> int | None:
        """Triton's metrics have a port of their own."""
        return ports.metrics

    def evidence(self) -> tuple[Evidence, ...]:
        """What shows that this is Triton, with the model loaded."""
        return self._evidence.found()

    def batching_seen(self, ports: Ports, *, timeout_s: float) -> BatchingSeen | None:
        """Read its statistics; what it said before where it does not answer now."""
        answer = ask(self._spec.host, ports.http, STATS_PATH, timeout_s=timeout_s)
        if answer is not None and answer.status == 200:
            self._meter.take(answer.body, at=time.monotonic())
        return self._meter.seen()

    def vital_children(self, pid: int) -> Sequence[int]:
        """The stubs: Triton says it is ready for ever after one has died."""
        return processes.children(pid)

    def cause(self, lines: Sequence[str]) -> Cause | None:
        """Give the exception that Triton repeats, without its traceback."""
        for line in reversed(lines):
            found = _LOAD_FAILURE.search(line)
            if found:
                message = f"The model failed to load: {_first_part(found[1])}"
                # A stub that died may have been killed for want of memory; an exception is a
                # property of the model.
                return Cause(message=message, is_final=not _UNHEALTHY.search(line))
            found = _START_FAILURE.search(line)
            if found:
                return Cause(message=f"Triton {_first_part(found[1])}.", is_final=False)
        return None

    def drain(self, ports: Ports, *, deadline: float) -> float:
        """Wait for quiet, then unload the model: Triton finishes what it was asked before that.

        The metrics do not count requests that run, only those that wait or are done; the state of
        the model does.
        """
        host = self._spec.host
        self._wait_for_quiet(ports, deadline=(deadline + time.monotonic()) / 2)
        unload = f"/v2/repository/models/{MODEL}/unload"
        answer = ask(host, ports.http, unload, timeout_s=ASK_TIMEOUT_S, post=True)
        if answer is None or answer.status != 200:
            return END_S
        while time.monotonic() < deadline:
            index = ask(
                host, ports.http, "/v2/repository/index", timeout_s=ASK_TIMEOUT_S, post=True
            )
            if index is None or _is_unloaded(index.body):
                break
            time.sleep(POLL_S)
        return END_S

    def clean_up(self) -> None:
        """Remove shared memory that a killed server left."""
        shared_memory.remove_regions(self._prefix)

    @property
    def _work(self) -> Path:
        """The server's working folder, and its stubs'."""
        return self._spec.directory / "work"

    def _wait_for_quiet(self, ports: Ports, *, deadline: float) -> None:
        seen, since = None, time.monotonic()
        while time.monotonic() < deadline:
            metrics = ask(self._spec.host, ports.metrics, "/metrics", timeout_s=ASK_TIMEOUT_S)
            if metrics is None:
                return
            counted = _COUNTERS.findall(metrics.body)
            waiting = any(float(count) > 0 for count in _PENDING.findall(metrics.body))
            if counted != seen or waiting:
                seen, since = counted, time.monotonic()
            elif time.monotonic() - since >= QUIET_S:
                return
            time.sleep(POLL_S)

    def _variables(self) -> dict[str, str]:
        variables = server_environment(self._spec)
        libraries = [str(place) for place in self._home.libraries] if self._home else []
        given = variables.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = ":".join([*libraries, given] if given else libraries)
        return variables

    def _note(self, kind: EvidenceKind, text: str) -> None:
        line = self._say(text)
        if line is not None:
            self._evidence.answer(kind, line)


def _first_part(escaped: str) -> str:
    """An exception's text as Triton quotes it, up to its traceback, on one line."""
    text = escaped.removesuffix('"').split("\\n\\nAt:")[0].replace("\\n", " ").replace('\\"', '"')
    return " ".join(text.split())[:LONGEST_CAUSE]


def _is_unloaded(index: str) -> bool:
    try:
        models = json.loads(index)
    except ValueError:
        return False
    return all(m.get("state") not in ("READY", "UNLOADING", "LOADING") for m in models)
