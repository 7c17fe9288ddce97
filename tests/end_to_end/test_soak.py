"""Redeploys and a killed replica under load: no wrong answer, no lost request.

1,500 requests, one redeploy and one kill; SHOAL_SOAK=10000 makes it so many requests with three
redeploys. `--junitxml=FILE` records the figures.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stack import MODEL, Stack

pytestmark = [pytest.mark.stack, pytest.mark.triton, pytest.mark.timeout(600)]

CALLERS = 64
SMALL = 1500
REQUESTS = int(os.environ.get("SHOAL_SOAK", SMALL))
REDEPLOYS = 1 if REQUESTS <= SMALL else 3
PAUSE_S = 0.2 if REQUESTS <= SMALL else 0.0
ENDPOINT = "soak"


class Load:
    """Callers that ask as long as they are to, each on its own connection, each row only once."""

    def __init__(self, stack: Stack, least: int) -> None:
        self.stack, self.least = stack, least
        self.statuses: Counter[int | str] = Counter()
        self.wrong: list[str] = []
        self.slowest_s = 0.0
        self.is_over = threading.Event()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join()

    @property
    def answered(self) -> int:
        return sum(self.statuses.values())

    def _call(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.stack.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.stack.token}"}
        path = f"/serving-endpoints/{ENDPOINT}/invocations"
        while not self.is_over.is_set() or self.answered < self.least:
            number = next(self._numbers)
            # Whole numbers that float32 holds exactly, and no two answers alike.
            row = [number % 4096, 4096 + number // 4096, 1, 2]
            begun = time.monotonic()
            try:
                connection.request("POST", path, json.dumps({"inputs": [row]}), headers)
                response = connection.getresponse()
                text, status = response.read().decode(), response.status
            except (OSError, http.client.HTTPException) as exc:
                text, status = repr(exc), 0
                connection.close()
            self._note(row, status, text, time.monotonic() - begun)
            time.sleep(PAUSE_S)
        connection.close()

    def _note(self, row: list[int], status: int, text: str, took_s: float) -> None:
        is_right = status == 200 and json.loads(text) == {"predictions": [[sum(row), max(row)]]}
        with self._lock:
            self.statuses[status] += 1
            self.slowest_s = max(self.slowest_s, took_s)
            if not is_right:
                self.wrong.append(f"{row}: {status} {text[:300]}")


def redeploy(stack: Stack, number: int) -> None:
    """Deploy the same model anew, with other batching, and see the traffic switch."""
    rows = 4 * 2**number
    body = {
        "served_entities": [
            {
                "name": "current",
                "entity_name": MODEL,
                "entity_version": "1",
                "workload_type": "GPU_SMALL",
                "workload_size": "Small",
                "scale_to_zero_enabled": False,
                "environment_vars": {"ROUND": str(number)},
                "batching": {"max_batch_size": rows, "instance_count": 1 + number % 2},
            }
        ]
    }
    answer = stack.api("PUT", f"/api/2.0/serving-endpoints/{ENDPOINT}/config", json=body)
    assert answer.ok, answer.text
    settled = stack.wait_until_settled(ENDPOINT)
    assert settled["state"] == settled["state"] | {
        "ready": "READY",
        "config_update": "NOT_UPDATING",
    }
    in_force = settled["config"]["served_entities"][0]["batching_in_force"]["max_batch_size"]
    assert (in_force["value"], in_force["source"]) == (rows, "override")


def kill_server(stack: Stack) -> None:
    """End the Triton of the endpoint's newest replica with SIGKILL, and see it back."""
    found = []
    for folder in (stack.folder / "data" / "replicas").iterdir():
        spec = json.loads((folder / "spec.json").read_text())
        status = json.loads((folder / "status.json").read_text())
        is_there = Path(f"/proc/{status['server_pid']}").exists()  # not one that was measured
        if spec["endpoint_name"] == ENDPOINT and status["state"] == "READY" and is_there:
            found.append((spec["config_version"], folder / "status.json", status))
    _, file, before = max(found, key=lambda item: item[0])

    def is_back() -> bool:
        now = json.loads(file.read_text())
        return bool(now["state"] == "READY" and now["restarts"] > before["restarts"])

    os.kill(before["server_pid"], signal.SIGKILL)
    stack.wait_until(is_back, 120, "the replica to be back")


def retried(stack: Stack) -> int:
    """How many of the requests were tried again."""
    text = stack.api("GET", f"/api/2.0/serving-endpoints/{ENDPOINT}/metrics").text
    counts = re.findall(r"^shoal_retried_requests_total\{.+\} (\d+) ", text, re.MULTILINE)
    return sum(map(int, counts))


def test_no_answer_is_wrong_and_no_request_is_lost(
    stack: Stack, record_property: Callable[[str, object], None]
) -> None:
    stack.create(ENDPOINT, "1")
    assert stack.wait_until_settled(ENDPOINT)["state"]["ready"] == "READY"
    begun = time.monotonic()

    with Load(stack, REQUESTS) as load:
        stack.wait_until(lambda: load.answered > CALLERS, 30, "the first answers")
        for number in range(REDEPLOYS):
            redeploy(stack, number)
            if number == 0:
                kill_server(stack)

    took_s = time.monotonic() - begun
    figures = f"{load.statuses}, {took_s:.1f} s, slowest {load.slowest_s:.2f} s"
    record_property("figures", f"{figures}, retried {retried(stack)}")
    assert load.wrong == []
    assert load.statuses[200] == load.answered >= REQUESTS
