"""Requests of every kind in flight at once on the real Triton: each answered as if it were alone.

What a request has to be answered with is what MLflow's own scoring code answers for it, alone.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import mlflow
import pytest
import requests

from serving.spec import PythonEnvironment
from tests.support.gateway import GatewayServer, Publisher, entity, wait_until_routed
from tests.support.launcher import Launcher
from tests.support.scoring import ask_mlflow, plain_words, same_json
from tests.support.telltale import SIGNATURES, Requests, launch

pytestmark = pytest.mark.triton

REQUESTS = 150


@pytest.fixture(scope="module")
def served(
    launcher: Launcher, environment: PythonEnvironment
) -> Iterator[dict[str, tuple[str, Any]]]:
    """A replica for each signature."""
    yield launch(launcher, list(SIGNATURES), environment)
    for name in SIGNATURES:
        launcher.runtime.kill(name)


@pytest.mark.parametrize("name", SIGNATURES)
def test_each_of_many_requests_at_once_is_answered_as_if_alone(
    gateway: GatewayServer, publisher: Publisher, served: dict[str, tuple[str, Any]], name: str
) -> None:
    address, saved = served[name]
    with warnings.catch_warnings(record=True):  # its advice on type hints
        model = mlflow.pyfunc.load_model(str(saved.directory))
    publisher.route(entity(address, signature=saved.signature, name=name))
    bodies = Requests(name).some(REQUESTS)
    alone = [ask_mlflow(model, json.dumps(body).encode()) for body in bodies]
    wait_until_routed(gateway)

    together = gateway.ask_all(bodies)

    outcomes = set()
    for body, expected, response in zip(bodies, alone, together, strict=True):
        answer = response.json()
        outcomes.add((response.status_code, answer.get("error_code", "")))
        if answer.get("error_code") == "INVALID_STATE":
            # Fewer rows than were given: found, and told to its own caller alone.
            assert "404" in json.dumps(body)
            assert "cannot be batched" in answer["message"]
            continue
        status = 400 if expected.status == 500 else expected.status
        assert response.status_code == status, (body, answer, expected)
        if expected.status == 200:
            assert same_json(answer["predictions"], expected.predictions), (body, answer, expected)
        elif expected.status != 500:
            assert answer["error_code"] == expected.code
            theirs = plain_words(expected.message, shows_data=False)
            assert plain_words(answer["message"], shows_data=False) == theirs
    assert {(200, ""), (400, "BAD_REQUEST"), (400, "INVALID_STATE")} <= outcomes
    (statistics,) = requests.get(f"http://{address}/v2/models/model/stats", timeout=5).json()[
        "model_stats"
    ]
    assert statistics["execution_count"] < statistics["inference_count"]
