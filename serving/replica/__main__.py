"""`python -m serving.replica DIRECTORY`: run the replica whose `spec.json` lies there.

The file holds no secrets. They come as a JSON object on the standard input, from variable to value,
and stay in this process and the server's: a server is started again from here.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from serving.errors import ServingError
from serving.replica import processes
from serving.replica.lock import AlreadyRunning, SupervisorLock
from serving.replica.log_store import LogStore
from serving.replica.status import StatusPublisher
from serving.replica.supervisor import Supervisor
from serving.spec import ReplicaSpec, from_json

log = logging.getLogger("serving.replica")

SPEC_FILE = "spec.json"
OUTPUT_FILE = "supervisor.log"
SECRETS = "--secrets-on-stdin"
STARTED = b"started"


def main(arguments: list[str] | None = None) -> int:
    """Run a replica, in the background with `--detach`."""
    parser = argparse.ArgumentParser(prog="python -m serving.replica", description=__doc__)
    parser.add_argument("directory", type=Path, help="the replica's folder")
    parser.add_argument(
        "--detach", action="store_true", help="go on in the background once it has started"
    )
    parser.add_argument(SECRETS, action="store_true", help="read the secrets from the input")
    options = parser.parse_args(arguments)
    directory: Path = options.directory.resolve()
    secrets: dict[str, str] = json.load(sys.stdin) if options.secrets_on_stdin else {}
    if options.detach:
        return _detach(directory, secrets)
    return _run(directory, secrets, tell=None)


def _detach(directory: Path, secrets: Mapping[str, str]) -> int:
    """Leave the supervisor running in a session of its own; say why if it does not start."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        os.setsid()
        _use_output_file(directory)
        code = 1
        try:
            code = _run(directory, secrets, tell=writing)
        finally:
            logging.shutdown()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    if said == STARTED:
        return 0
    sys.stderr.write(said.decode(errors="replace") or "The supervisor ended at its start.\n")
    return 1


def _use_output_file(directory: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(directory / OUTPUT_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _run(directory: Path, secrets: Mapping[str, str], *, tell: int | None) -> int:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        lock = SupervisorLock(directory)
        spec = from_json(ReplicaSpec, (directory / SPEC_FILE).read_text())
        spec = replace(spec, environment_variables={**spec.environment_variables, **secrets})
        store = LogStore(directory)
        publisher = StatusPublisher(directory, spec.redis_url)
        supervisor = Supervisor(spec, store, publisher)
    except (AlreadyRunning, OSError, ValueError, ServingError) as exc:
        _tell(tell, f"{exc}\n".encode())
        log.error("the replica does not start: %s", exc)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.ask_to_stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    processes.adopt_orphans()
    supervisor.announce()
    _tell(tell, STARTED)
    try:
        is_stopped = supervisor.run()
    except Exception:
        log.exception("the supervisor failed")
        supervisor.crash("The supervisor failed; its own log tells more.")
        is_stopped = False
    publisher.close()
    del lock  # held until here
    return 0 if is_stopped else 1


def _tell(pipe: int | None, said: bytes) -> None:
    if pipe is not None:
        os.write(pipe, said)
        os.close(pipe)


if __name__ == "__main__":
    sys.exit(main())
