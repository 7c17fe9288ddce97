"""The main job on the whole stack: register, deploy behind Triton, query, switch, survive."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import redis

from tests.support.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.triton, pytest.mark.timeout(600)]


class ConstantLoad:
    """A light load on an endpoint; every answer is checked."""

    def __init__(self, stack: Stack, endpoint: str, every_s: float = 0.05) -> None:
        self.stack, self.endpoint, self.every_s = stack, endpoint, every_s
        self.answered = 0
        self.wrong: list[str] = []
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(k,)) for k in range(3)]

    def __enter__(self) -> ConstantLoad:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def _run(self, k: int) -> None:
        number = 0
        while not self.stopped.wait(self.every_s):
            number += 1
            row = [float(k), float(number), 0.5, 1.0]
            try:
                answer = self.stack.query(self.endpoint, [row])
            except OSError as exc:
                self.wrong.append(repr(exc))
                continue
            self.answered += 1
            wanted = [[sum(row), max(row)]]
            if answer.status_code != 200 or answer.json()["predictions"] != wanted:
                self.wrong.append(f"{answer.status_code} {answer.text[:300]}")


@pytest.fixture(scope="module")
def endpoint(stack: Stack) -> str:
    """An endpoint behind Triton."""
    stack.create("main-job", "1")
    body = stack.wait_until_settled("main-job")
    assert body["state"] == body["state"] | {"ready": "READY", "config_update": "NOT_UPDATING"}, (
        body
    )
    return "main-job"


def triton_of(stack: Stack, endpoint: str) -> dict[str, object]:
    triton: dict[str, object] = stack.endpoint(endpoint)["config"]["served_entities"][0]["triton"]
    return triton


def pids(pattern: str, stack: Stack) -> list[int]:
    """Processes of this stack whose command line holds `pattern`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            environment = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if pattern in command and str(stack.folder) in environment + command:
            found.append(int(entry.name))
    return found


def test_triton_is_active_and_each_piece_of_evidence_stands_in_the_log(
    stack: Stack, endpoint: str
) -> None:
    stack.wait_until(lambda: triton_of(stack, endpoint)["status"] == "ACTIVE", 90, "the badge")

    triton = triton_of(stack, endpoint)
    logs = stack.api("GET", f"/api/2.0/serving-endpoints/{endpoint}/served-models/current/logs")

    text = logs.json()["logs"]
    assert "successfully loaded 'model'" in text
    assert "[ts/" in text
    evidence = triton["evidence"]
    assert isinstance(evidence, list)
    in_log = [piece for piece in evidence if piece["line"]]
    assert len(in_log) >= 3
    assert all(piece["text"] in text for piece in in_log)


def test_the_model_was_measured_and_its_batching_says_so(stack: Stack, endpoint: str) -> None:
    path = f"/api/2.0/serving-endpoints/{endpoint}/served-models/current/profile"

    profile = stack.api("GET", path).json()

    assert profile["steps"][0]["rows"] == 1
    assert profile["probe"]["is_row_independent"] is True
    entity = stack.endpoint(endpoint)["config"]["served_entities"][0]
    in_force = entity["batching_in_force"]["max_batch_size"]
    assert in_force["value"] == profile["chosen"]["max_batch_size"]
    assert in_force["source"] == "profile"
    assert in_force["reason"]


def test_rows_keep_their_own_answers(stack: Stack, endpoint: str) -> None:
    answer = stack.query(endpoint, [[1, 2, 3, 4], [0, 0, 0, 9]])

    assert answer.status_code == 200, answer.text
    assert answer.json()["predictions"] == [[10, 4], [9, 9]]
    assert answer.headers["served-model-name"] == "current"


def test_a_bad_request_fails_alone(stack: Stack, endpoint: str) -> None:
    with ConstantLoad(stack, endpoint, every_s=0.005) as load:
        bad = [stack.query(endpoint, [[-1, 2, 3, 4]]) for _ in range(20)]

    assert {answer.status_code for answer in bad} == {400}
    assert "must not be negative" in bad[0].json()["message"]
    assert load.answered > 0
    assert load.wrong == []


def test_the_checkbox_goes_off_and_on_again_without_a_failed_request(
    stack: Stack, endpoint: str
) -> None:
    entity = {
        "name": "current",
        "entity_name": "main.default.sum_and_max",
        "entity_version": "1",
        "workload_type": "GPU_SMALL",
        "workload_size": "Small",
        "scale_to_zero_enabled": False,
    }
    seen = []
    with ConstantLoad(stack, endpoint) as load:
        for wanted in (False, True):
            body = {"served_entities": [{**entity, "throughput_optimized": wanted}]}
            answer = stack.api("PUT", f"/api/2.0/serving-endpoints/{endpoint}/config", json=body)
            assert answer.ok, answer.text
            stack.wait_until_settled(endpoint)
            seen.append(triton_of(stack, endpoint)["status"])
            time.sleep(1)

    assert load.wrong == []
    assert load.answered > 20
    assert seen == ["OFF", "ACTIVE"]


def test_it_serves_on_when_the_task_workers_are_killed(stack: Stack, endpoint: str) -> None:
    with ConstantLoad(stack, endpoint) as load:
        workers = pids("celery -A portal worker", stack)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        stack.wait_until(
            lambda: set(pids("celery -A portal worker", stack)) - set(workers), 90, "new workers"
        )
        time.sleep(2)

    assert workers
    assert load.wrong == []
    assert triton_of(stack, endpoint)["status"] == "ACTIVE"


def test_it_serves_on_when_a_web_process_is_killed(stack: Stack, endpoint: str) -> None:
    web = pids("portal.launcher.web", stack)

    os.kill(web[0], signal.SIGKILL)
    stack.wait_until(lambda: len(pids("portal.launcher.web", stack)) == len(web), 90, "a successor")

    assert [stack.query(endpoint, [[1, 2, 3, 4]]).status_code for _ in range(20)] == [200] * 20


def test_it_serves_on_when_valkey_is_killed(stack: Stack, endpoint: str) -> None:
    servers = pids("valkey.sock", stack)
    with ConstantLoad(stack, endpoint) as load:
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
        stack.wait_until(lambda: set(pids("valkey.sock", stack)) - set(servers), 90, "Valkey again")
        time.sleep(2)

    assert servers
    assert load.wrong == []
    stack.wait_until(lambda: triton_of(stack, endpoint)["status"] == "ACTIVE", 90, "the badge")


def test_triton_comes_back_within_seconds_after_a_kill(stack: Stack, endpoint: str) -> None:
    tritons = pids("bin/tritonserver", stack)
    assert tritons

    for pid in tritons:
        os.kill(pid, signal.SIGKILL)

    answer = stack.query(endpoint, [[1, 2, 3, 4]])
    assert answer.status_code == 200, answer.text
    logs = stack.api("GET", f"/api/2.0/serving-endpoints/{endpoint}/served-models/current/logs")
    assert "The server was killed (exit code 137)" in logs.json()["logs"]
    stack.wait_until(lambda: triton_of(stack, endpoint)["status"] == "ACTIVE", 90, "the badge")


def test_turning_the_preview_off_leaves_running_deployments_alone(
    stack: Stack, endpoint: str
) -> None:
    stack.manage("preview", "throughput_optimized", "off")
    try:
        assert triton_of(stack, endpoint)["status"] == "ACTIVE"
        body = {
            "name": "refused",
            "config": {
                "served_entities": [
                    {
                        "entity_name": "main.default.sum_and_max",
                        "entity_version": "1",
                        "workload_type": "GPU_SMALL",
                        "workload_size": "Small",
                        "throughput_optimized": True,
                    }
                ]
            },
        }
        answer = stack.api("POST", "/api/2.0/serving-endpoints", json=body)
        assert (answer.status_code, answer.json()["error_code"]) == (403, "FEATURE_DISABLED")
    finally:
        stack.manage("preview", "throughput_optimized", "on")


def test_a_version_without_env_pack_is_built_from_its_requirements_and_served_without_triton(
    stack: Stack,
) -> None:
    version = stack.register("main.default.plain", "--plain")
    path = "/api/2.0/serving-endpoints/plain/served-models/current/build-logs"

    stack.create(
        "plain", version, "main.default.plain", workload_type="CPU", throughput_optimized=False
    )
    body = stack.wait_until_settled("plain", limit_s=400)

    assert body["state"]["ready"] == "READY", body
    triton = body["config"]["served_entities"][0]["triton"]
    assert (triton["status"], triton["reason_code"]) == ("OFF", "NOT_REQUESTED")
    assert stack.query("plain", [[1, 2, 3, 4]]).json() == {"predictions": [[10, 4]]}
    assert "mlflow-skinny" in stack.api("GET", path).json()["logs"]


def test_a_model_that_fails_to_load_on_triton_names_its_step_and_its_error(stack: Stack) -> None:
    version = stack.register("main.default.broken", "break=load")

    stack.create("broken", version, "main.default.broken")
    body = stack.wait_until_settled("broken")

    assert body["state"] == body["state"] | {"ready": "NOT_READY", "config_update": "UPDATE_FAILED"}
    entity = body["pending_config"]["served_entities"][0]
    assert entity["state"]["deployment"] == "DEPLOYMENT_FAILED"
    assert "broken on purpose" in entity["state"]["deployment_state_message"]


def test_everything_stops_with_the_launcher_and_comes_back_with_it(tmp_path: Path) -> None:
    own = Stack(tmp_path)
    own.start()
    try:
        own.manage("preview", "throughput_optimized", "on")
        own.create("again", own.register())
        assert own.wait_until_settled("again")["state"]["ready"] == "READY"
        own.stop()
        assert pids("", own) == []

        own.start()

        own.wait_until(
            lambda: own.query("again", [[1, 2, 3, 4]]).status_code == 200, 60, "an answer"
        )
        own.wait_until(lambda: triton_of(own, "again")["status"] == "ACTIVE", 90, "the badge")
    finally:
        own.stop()


def test_a_taken_port_is_named(stack: Stack, tmp_path: Path) -> None:
    second = Stack(tmp_path, SHOAL_PORT=str(stack.port))

    done = subprocess.run(
        ["make", "up"],
        cwd=Path(__file__).parents[2],
        env=second.environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    assert f"port {stack.port}" in done.stderr
    assert "SHOAL_PORT" in done.stderr


def test_a_data_directory_in_use_is_named(stack: Stack) -> None:
    environment = stack.environment | {"SHOAL_PORT": "1"}

    done = subprocess.run(
        ["make", "up"],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    assert "already runs on this data directory" in done.stderr


def test_valkey_is_reachable_only_through_its_socket(stack: Stack) -> None:
    client = redis.Redis.from_url(f"unix://{stack.folder}/data/valkey/valkey.sock")

    assert client.config_get("port") == {"port": "0"}
