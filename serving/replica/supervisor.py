"""Keep one replica's server running, and say how it is."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from dataclasses import replace
from typing import Any

from serving.errors import LaunchError
from serving.replica import processes
from serving.replica.environment import secret_values
from serving.replica.life import Life
from serving.replica.log_store import LogStore
from serving.replica.ports import Ports, are_free, free_ports
from serving.replica.restarts import Failure, RestartPolicy, describe_exit
from serving.replica.server import Health, make_server
from serving.replica.status import StatusPublisher
from serving.replica.usage import UsageMeter
from serving.spec import ReplicaSpec, ReplicaState, ReplicaStatus

log = logging.getLogger(__name__)

TICK_S = 0.1
WATCH_TICK_S = 0.25
CHECK_S = 2.0
START_CHECK_TIMEOUT_S = 1.0
CHECK_TIMEOUT_S = 5.0
PROOF_PATIENCE_S = 5.0
"""A server that answers serves, also where a later release words its start-up lines anew."""

FLUSH_S = 1.5
STARTING_STOP_S = 2.0


class Supervisor:
    """Runs until it is asked to stop or gives the server up."""

    def __init__(self, spec: ReplicaSpec, store: LogStore, publisher: StatusPublisher) -> None:
        self._spec = spec
        self._store = store
        self._publisher = publisher
        self._server = make_server(spec, store.say)
        self._policy = RestartPolicy()
        self._secrets = secret_values(spec)
        self._usage = UsageMeter(spec.device)
        self._ports: Ports | None = None
        self._is_stopping = False
        self._deadline = time.monotonic() + spec.start_deadline_s
        now = time.time()
        self._status = ReplicaStatus(
            replica_id=spec.replica_id,
            state=ReplicaState.STARTING,
            backend=spec.backend,
            message="Preparing the model and its environment.",
            beat_at=now,
            started_at=now,
            supervisor_pid=os.getpid(),
        )

    def ask_to_stop(self) -> None:
        """Drain and stop soon; may be called from a signal handler, and again."""
        self._is_stopping = True

    def announce(self) -> None:
        """Publish that it starts."""
        self._publisher.publish(self._status)

    def run(self) -> bool:
        """Serve until the end.

        Returns:
            True when it stopped as asked, False when it gave up.
        """
        spec = self._spec
        self._store.say(
            f"Replica {spec.replica_id} of {spec.served_entity_name} (endpoint"
            f" {spec.endpoint_name}, config {spec.config_version}): {spec.backend} backend on"
            f" {spec.device.kind}."
        )
        try:
            if processes.end_marked(spec.directory):
                self._store.say("An earlier server of this replica still ran; it was killed.")
            self._server.prepare()
            failure = self._keep_alive()
        except LaunchError as exc:
            failure = Failure(message=exc.message)
        if failure is not None:
            self._give_up(failure)
            return False
        self._change(
            state=ReplicaState.STOPPED, message="Stopped.", address=None, metrics_address=None
        )
        self._store.say("Stopped.")
        return True

    def crash(self, message: str) -> None:
        """Publish that the supervisor itself failed."""
        self._give_up(Failure(message=message))

    def _keep_alive(self) -> Failure | None:
        """Start the server again and again, until it is asked to stop or gives a failure up."""
        while not self._is_stopping:
            life, failure = self._live()
            if failure is None:
                break
            delay_s = self._policy.delay_after(failure, ready_for_s=life.ready_for_s)
            if delay_s is None:
                return failure
            self._recover(failure, delay_s)
        return None

    def _live(self) -> tuple[Life, Failure | None]:
        """One life of the server; no failure means that it was stopped as asked."""
        ports = self._choose_ports()
        for line in self._server.banner():
            self._store.say(line)
        try:
            life = Life(self._server, ports, self._store, self._secrets)
        except (OSError, subprocess.SubprocessError) as exc:
            raise LaunchError(f"The server could not be started: {exc}.") from exc
        self._change(message="Loading the model.", server_pid=life.process.pid)
        try:
            failure = self._await_ready(life) or self._watch(life)
            if failure is None:
                self._stop(life)
            elif life.is_port_taken():
                self._ports = None
            return life, failure
        finally:
            life.end()
            self._server.clean_up()
            self._status = replace(
                self._status, server_pid=None, evidence=(), batching_seen=None, usage=None
            )

    def _await_ready(self, life: Life) -> Failure | None:
        answered_at: float | None = None
        while not self._is_stopping:
            failure = life.failure()
            if failure is not None:
                return failure
            if time.monotonic() >= self._deadline:
                return Failure(
                    message=f"The server was not ready within {self._spec.start_deadline_s:g} s.",
                    is_final=True,
                )
            health = self._server.check(life.ports, timeout_s=START_CHECK_TIMEOUT_S)
            now = time.monotonic()
            if health is Health.READY and life.is_listening():
                answered_at = answered_at or now
                if self._server.is_proven() or now - answered_at >= PROOF_PATIENCE_S:
                    self._become_ready(life)
                    return None
            self._tell_evidence()
            time.sleep(TICK_S)
        return None

    def _become_ready(self, life: Life) -> None:
        life.become_ready()
        host, metrics = self._spec.host, self._server.metrics_port(life.ports)
        self._store.say(f"Ready {time.monotonic() - life.started_at:.1f} s after its start.")
        self._change(
            state=ReplicaState.READY,
            message="Serving.",
            ready_at=time.time(),
            address=f"{host}:{self._server.port(life.ports)}",
            metrics_address=f"{host}:{metrics}" if metrics is not None else None,
            evidence=self._server.evidence(),
            exit_code=None,
        )

    def _watch(self, life: Life) -> Failure | None:
        """Watch a READY server; a false alarm costs a restart, so slow answers are waited for."""
        check_at = answered_at = time.monotonic()
        while not self._is_stopping:
            failure = life.failure()
            if failure is not None:
                return failure
            now = time.monotonic()
            if now >= check_at:
                if self._server.check(life.ports, timeout_s=CHECK_TIMEOUT_S) is Health.READY:
                    answered_at = time.monotonic()
                    hang = self._server.hang(life.ports, life.process.pid)
                    if hang is not None:
                        return Failure(message=hang)
                check_at = time.monotonic() + CHECK_S
                if check_at - CHECK_S - answered_at >= self._server.patience_s:
                    return Failure(
                        message=f"The server has not said for {self._server.patience_s:g} s that"
                        " it is ready."
                    )
                self._tell_evidence()
                self._tell_batching(life)
                self._tell_usage(life)
            time.sleep(WATCH_TICK_S)
        return None

    def _recover(self, failure: Failure, delay_s: float) -> None:
        restarts = self._status.restarts + 1
        self._store.say(f"{self._explain(failure)} Starting it again in {delay_s:g} s.")
        self._change(
            state=ReplicaState.STARTING,
            message=f"Starting again: {failure.message}",
            address=None,
            metrics_address=None,
            restarts=restarts,
            exit_code=failure.exit_code,
        )
        if self._status.ready_at is not None:
            self._deadline = time.monotonic() + delay_s + self._spec.start_deadline_s
        until = time.monotonic() + delay_s
        while not self._is_stopping and time.monotonic() < until:
            time.sleep(TICK_S)

    def _stop(self, life: Life) -> None:
        """Drain: the gateway is told first, so that it sends no more."""
        deadline = time.monotonic() + self._spec.drain_deadline_s
        self._store.say("Asked to stop: finishing what it was asked to do.")
        self._change(state=ReplicaState.DRAINING, message="Finishing its requests.")
        self._publisher.flush(FLUSH_S)
        grace_s = STARTING_STOP_S
        if life.ready_at is not None:
            grace_s = self._server.drain(life.ports, deadline=deadline)
        if not life.terminate(grace_s):
            self._store.say("The server did not end by itself in time; it is killed.")

    def _give_up(self, failure: Failure) -> None:
        self._store.say(f"{self._explain(failure)} It is not started again.")
        self._change(
            state=ReplicaState.CRASHED,
            message=failure.message,
            address=None,
            metrics_address=None,
            exit_code=failure.exit_code,
            server_pid=None,
            evidence=(),
            usage=None,
        )

    def _explain(self, failure: Failure) -> str:
        text = failure.message
        if failure.exit_code is not None and str(failure.exit_code) not in text:
            text = f"{describe_exit(failure.exit_code)} {text}"
        return text if text.endswith(".") else f"{text}."

    def _choose_ports(self) -> Ports:
        """Keep the ports over restarts, so that the replica's address stays."""
        if self._ports is None or not are_free(self._spec.host, self._ports):
            self._ports = free_ports(self._spec.host)
        return self._ports

    def _tell_usage(self, life: Life) -> None:
        usage = self._usage.measure(life.process.pid)
        if usage is not None:
            self._status = replace(self._status, usage=usage)
            self._publisher.amend(self._status)

    def _tell_evidence(self) -> None:
        found = self._server.evidence()
        if found != self._status.evidence:
            self._change(evidence=found)

    def _tell_batching(self, life: Life) -> None:
        """With the next beat: it changes all the time, and nobody need be woken for it."""
        seen = self._server.batching_seen(life.ports, timeout_s=START_CHECK_TIMEOUT_S)
        if seen != self._status.batching_seen:
            self._status = replace(self._status, batching_seen=seen)
            self._publisher.amend(self._status)

    def _change(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes)
        self._publisher.publish(self._status)
