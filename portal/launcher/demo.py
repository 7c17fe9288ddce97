"""The demo's steps, through the doors that users take: mlflow client, REST API, gateway."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import Any

import requests
from django.conf import settings

from portal.accounts.services import create_token, ensure_admin, revoke_token
from portal.endpoints.models import DeploymentStep, Replica
from portal.endpoints.states import StepState
from portal.launcher.console import base_url
from portal.launcher.packages import link_packages
from portal.launcher.stack import Say, Stack
from portal.previews.services import set_enabled

MODEL = "main.demo.text_embedder"
ENDPOINT = "demo-text-embedder"
PACKAGES = ("mlflow-skinny", "torch", "numpy", "pandas")
CALLERS, REQUESTS = 32, 3200
READY_LIMIT_S = 900
MAX_SHOWN = 140  # characters of a piece of evidence on the console


class DemoFailed(Exception):
    """A step of the demo did not work; the portal stays up, so that one can look."""


def show(stack: Stack, say: Say) -> None:
    """Run the demo beside the stack; report a failure, never take the portal down for it."""
    problem: list[Exception] = []

    def work() -> None:
        try:
            _run(say)
        except (DemoFailed, requests.RequestException, subprocess.SubprocessError, OSError) as exc:
            problem.append(exc)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        stack.look_after()
        thread.join(0.2)
    if problem:
        say(f"the demo failed: {problem[0]}")
    say(f"portal: {base_url()}/endpoints/{ENDPOINT}/  -  press Ctrl-C to stop everything")


def _run(say: Say) -> None:
    admin, _ = ensure_admin(None)
    token, value = create_token(admin, comment="demo", lifetime_s=24 * 3600)
    api = requests.Session()
    api.headers["Authorization"] = f"Bearer {value}"
    try:
        set_enabled("throughput_optimized", True, admin)
        say('preview "Throughput optimized serving (Triton)" is on')
        version = _registered_version(api) or _register(api, value, say)
        _ensure_endpoint(api, version, say)
        entity = _wait_until_ready(api, say)
        _query(api, say)
        _print_evidence(entity, say)
    finally:
        revoke_token(token)


# ---------------------------------------------------------------- register


def _registered_version(api: requests.Session) -> str | None:
    answer = api.get(
        f"{base_url()}/api/2.0/mlflow/unity-catalog/model-versions/search",
        params={"filter": f"name='{MODEL}'"},
        timeout=60,
    )
    versions = answer.json().get("model_versions", []) if answer.ok else []
    ready = [int(v["version"]) for v in versions if v["status"] == "READY"]
    return str(max(ready)) if ready else None


def _register(api: requests.Session, token: str, say: Say) -> str:
    python = _client_environment(say)
    work = Path(settings.DATA_DIR) / "demo" / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    environment = {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", str(work)),
        "TMPDIR": str(work),
        "DATABRICKS_HOST": base_url(),
        "DATABRICKS_TOKEN": token,
        "DATABRICKS_ENV_VERSION": "5",
        "DATABRICKS_ACCELERATOR": "GPU",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_TRACKING_URI": f"file:{work}/mlruns",  # mlflow-skinny has no SQL store
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "SHOAL_DEMO_REQUIREMENTS": " ".join(_pins()),
    } | {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
    log = work / "client.log"
    say(f'registering {MODEL} with mlflow and env_pack="databricks_model_serving"')
    with log.open("wb") as out:
        client = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("demo_model.py")), MODEL],
            cwd=work,
            env=environment,
            stdout=out,
            stderr=out,
        )
        seen = ""
        while client.poll() is None:
            time.sleep(1)
            seen = _tell_progress(work, seen, say)
    if client.returncode:
        raise DemoFailed(f"the mlflow client failed:\n{log.read_text()[-2000:]}")
    version = _registered_version(api)
    if version is None:
        raise DemoFailed(f"the model is not in the registry:\n{log.read_text()[-2000:]}")
    say(f"registered {MODEL} version {version}")
    shutil.rmtree(work, ignore_errors=True)
    return version


def _tell_progress(work: Path, seen: str, say: Say) -> str:
    """One line when the client packs or uploads more; returns the line."""
    packed = _size(work, "model_environment.tar")
    uploading = _size(Path(settings.UPLOADS_DIR), "*")
    if uploading:
        line = f"uploading: {uploading / 2**20:.0f} of {packed / 2**20:.0f} MiB on the server"
    elif packed:
        line = f"packing the environment: {packed / 2**20:.0f} MiB"
    else:
        line = seen or "logging the model"
    if line != seen:
        say(line)
    return line


def _size(folder: Path, pattern: str) -> int:
    total = 0
    for file in folder.rglob(pattern):
        try:
            total += file.stat().st_blocks * 512 if file.is_file() else 0
        except OSError:  # it may go while we look
            continue
    return total


def _client_environment(say: Say) -> Path:
    """A small virtual environment with the mlflow client and torch; made once."""
    folder = Path(settings.DATA_DIR) / "demo" / "venv"
    python, done = folder / "bin" / "python", folder / "installed"
    if done.exists():
        return python
    say("making the client's virtual environment: " + ", ".join(_pins()))
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (folder / "lib64").unlink(missing_ok=True)  # else env_pack packs every package twice
    link_packages(PACKAGES, folder)
    done.touch()
    return python


def _pins() -> list[str]:
    return [f"{name}=={metadata.version(name).partition('+')[0]}" for name in PACKAGES]


# ---------------------------------------------------------------- deploy


def _ensure_endpoint(api: requests.Session, version: str, say: Say) -> None:
    url = f"{base_url()}/api/2.0/serving-endpoints"
    if api.get(f"{url}/{ENDPOINT}", timeout=60).ok:
        say(f"endpoint {ENDPOINT} is there")
        return
    entity = {
        "name": "embedder",
        "entity_name": MODEL,
        "entity_version": version,
        "workload_type": "GPU_SMALL",
        "workload_size": "Small",
        "scale_to_zero_enabled": False,
        "throughput_optimized": True,
    }
    body = {"name": ENDPOINT, "config": {"served_entities": [entity]}}
    answer = api.post(url, json=body, timeout=60)
    if not answer.ok:
        raise DemoFailed(f"the endpoint was refused: {answer.text}")
    say(f"created endpoint {ENDPOINT}: GPU_SMALL, Throughput optimized on")


def _wait_until_ready(api: requests.Session, say: Say) -> dict[str, Any]:
    url = f"{base_url()}/api/2.0/serving-endpoints/{ENDPOINT}"
    begin, told = time.monotonic(), ""
    while time.monotonic() - begin < READY_LIMIT_S:
        body = api.get(url, timeout=60).json()
        state = body["state"]
        config = body.get("pending_config") or body.get("config") or {}
        entity: dict[str, Any] = config["served_entities"][0]
        line = _running_step() or entity["triton"]["message"]
        if line != told:
            say(line)
            told = line
        if state["config_update"] == "UPDATE_FAILED":
            raise DemoFailed(f"the deployment failed: {entity['state']}")
        if (
            state == state | {"ready": "READY", "config_update": "NOT_UPDATING"}
            and entity["triton"]["status"] == "ACTIVE"
        ):
            say(f"READY after {time.monotonic() - begin:.1f} s")
            return entity
        time.sleep(0.5)
    raise DemoFailed(f"the endpoint is not READY with Triton after {READY_LIMIT_S} s: {told}")


def _running_step() -> str:
    """The deployment's step that runs now and what it waits for; empty when none runs."""
    step = DeploymentStep.objects.filter(
        deployment__endpoint__name=ENDPOINT, state=StepState.RUNNING
    ).last()
    return f"{step.get_name_display()}: {step.message or 'running'}" if step else ""


# ---------------------------------------------------------------- query and prove


def _query(api: requests.Session, say: Say) -> None:
    headers = {"Authorization": str(api.headers["Authorization"])}
    path = f"/serving-endpoints/{ENDPOINT}/invocations"

    def call(caller: int) -> list[float]:
        connection = http.client.HTTPConnection(base_url().removeprefix("http://"), timeout=60)
        times = []
        for number in range(REQUESTS // CALLERS):
            ids = [[(caller * 31 + number * 7 + k) % 1000 for k in range(32)]]
            begin = time.monotonic()
            connection.request("POST", path, json.dumps({"inputs": ids}), headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != HTTPStatus.OK:
                raise DemoFailed(f"a request failed: {body[:200].decode(errors='replace')}")
            times.append(time.monotonic() - begin)
        connection.close()
        return times

    begin = time.monotonic()
    with ThreadPoolExecutor(CALLERS) as pool:
        times = sorted(t for caller in pool.map(call, range(CALLERS)) for t in caller)
    say(
        f"{len(times)} requests from {CALLERS} callers in {time.monotonic() - begin:.1f} s, "
        f"median {times[len(times) // 2] * 1000:.0f} ms, none failed"
    )


def _print_evidence(entity: dict[str, Any], say: Say) -> None:
    say(f"{entity['triton']['status']}: {entity['triton']['message']}")
    for piece in entity["triton"]["evidence"]:
        line = f" (log line {piece['line']})" if piece.get("line") else ""
        say(f"  evidence: {piece['text'][:MAX_SHOWN]}{line}")
    for replica in Replica.objects.filter(entity__name=entity["name"], is_wanted=True):
        rows, batches = _batches(replica.metrics_address)
        if batches:
            say(
                f"  replica {replica.public_id}: {rows:.0f} rows in {batches:.0f} batches, "
                f"mean batch size {rows / batches:.1f}"
            )


def _batches(metrics_address: str) -> tuple[float, float]:
    """Rows and batches that Triton has run, from its own metrics."""
    text = requests.get(f"http://{metrics_address}/metrics", timeout=10).text

    def counter(name: str) -> float:
        return sum(float(v) for v in re.findall(rf"^{name}{{.*}} ([0-9.e+]+)$", text, re.M))

    return counter("nv_inference_count"), counter("nv_inference_exec_count")
