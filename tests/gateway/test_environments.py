"""Models in environments of other Pythons, NumPys and pandas on the real Triton.

Environments are built in the product's own way and kept in `.cache/`. What a request has to be
answered with is what MLflow's scoring code answers in that very environment. By default the oldest
and the newest of this machine's Pythons are tried; `--all-environments` tries them all.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import mlflow
import pytest

from serving.artifacts import EnvironmentStore, build_environment, build_key, find_interpreter
from serving.spec import PythonEnvironment
from tests.support.client import ROOT
from tests.support.gateway import GatewayServer, Publisher, entity, wait_until_routed
from tests.support.launcher import Launcher
from tests.support.scoring import plain_words, same_json
from tests.support.telltale import Requests, launch

pytestmark = pytest.mark.triton

OURS = f"mlflow-skinny=={mlflow.__version__}"
COMBINATIONS = {
    "3.10": (OURS, "numpy==1.26.4", "pandas==2.2.3"),
    "3.11": (OURS, "numpy==2.2.6", "pandas==2.2.3"),
    "3.12": ("mlflow-skinny==2.22.0", "numpy==2.2.6", "pandas==2.2.3"),
    "3.13": (OURS, "numpy==2.4.6", "pandas==3.1.1"),
}
REQUESTS = 40
NAMES = ("array", "table", "maybe")

ASK_MLFLOW = """
import json, logging, sys, warnings

warnings.simplefilter("ignore")
from mlflow import pyfunc
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import scoring_server

logging.getLogger("mlflow").setLevel(logging.ERROR)


def ask(model, body):
    schema = model.metadata.get_input_schema()
    try:
        reply = scoring_server.invocations(json.dumps(body), "application/json", model, schema)
        return [reply.status, "", reply.response]
    except MlflowException as exc:
        return [exc.get_http_status_code(), exc.error_code, exc.message]
    except Exception as exc:
        return [500, "", repr(exc)]


answers = []
for directory, bodies in json.load(sys.stdin):
    model = pyfunc.load_model(directory)
    answers.append([ask(model, body) for body in bodies])
print(json.dumps(answers))
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case a Python that this machine has with a shared library, which Triton needs."""
    if "python_version" in metafunc.fixturenames:
        found = [version for version in COMBINATIONS if _has(version)]
        chosen = (
            found if metafunc.config.getoption("--all-environments") else found[:1] + found[1:][-1:]
        )
        metafunc.parametrize("python_version", chosen)


def _has(version: str) -> bool:
    interpreter = find_interpreter(version)
    return interpreter is not None and interpreter.libpython is not None


def make(version: str, folder: Path) -> PythonEnvironment:
    """The environment, built now if it is not in the cache."""
    interpreter = find_interpreter(version)
    assert interpreter is not None
    requirements = "".join(f"{line}\n" for line in COMBINATIONS[version])
    return build_environment(
        EnvironmentStore(root=ROOT / ".cache" / "environments"),
        key=build_key(requirements, version, model=""),
        interpreter=interpreter,
        requirements=requirements,
        model_directory=folder,
        log_file=folder / "build.log",
        progress=lambda _: None,
    )


@pytest.mark.timeout(600)  # the first run installs packages
def test_a_model_answers_as_in_mlflow_s_server_in_its_own_environment(
    gateway: GatewayServer,
    publisher: Publisher,
    launcher: Launcher,
    tmp_path: Path,
    python_version: str,
) -> None:
    environment = make(python_version, tmp_path)
    suffix = f"-{python_version.replace('.', '')}"
    replicas = launch(launcher, NAMES, environment, suffix)

    bodies = {name: Requests(name).some(REQUESTS) for name in NAMES}
    asked = [[str(replicas[name][1].directory), bodies[name]] for name in NAMES]

    expected = alone(environment, asked)

    for name, answers in zip(NAMES, expected, strict=True):
        address, model = replicas[name]
        publisher.route(entity(address, signature=model.signature, name=name), endpoint=name)
        wait_until_routed(gateway, endpoint=name)
        together = gateway.ask_all(bodies[name], endpoint=name)
        has_our_words = OURS in COMBINATIONS[python_version]
        compare(bodies[name], answers, together, has_our_words=has_our_words)
        launcher.runtime.kill(f"{name}{suffix}")


def alone(environment: PythonEnvironment, asked: list[Any]) -> list[Any]:
    """What MLflow's scoring code answers in the environment: status, code, text.

    Args:
        environment: Where it runs.
        asked: Models' folders, each with its requests.
    """
    done = subprocess.run(
        [environment.python, "-I", "-c", ASK_MLFLOW],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        cwd=environment.directory,
    )
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def compare(
    bodies: list[Any], expected: list[Any], together: list[Any], *, has_our_words: bool
) -> None:
    """Other releases of MLflow than the gateway's word some refusals in another way."""
    for body, (status, code, text), response in zip(bodies, expected, together, strict=True):
        answer = response.json()
        if answer.get("error_code") == "INVALID_STATE":
            assert "404" in json.dumps(body)
        elif status == 200:
            assert response.status_code == 200, (body, answer, text)
            wanted = json.loads(text)["predictions"]
            assert same_json(answer["predictions"], wanted), (body, answer, text)
        else:
            assert response.status_code == 400, (body, answer, text)
            if status == 400:
                assert answer["error_code"] == code, (body, answer, text)
            if status == 400 and has_our_words:
                ours = plain_words(answer["message"], shows_data=False)
                assert ours == plain_words(text, shows_data=False)
