"""The gateway before real Triton replicas: any kind of model, many callers, faults of a request."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from typing import Any

import mlflow.models
import numpy as np
import pytest
from mlflow.types import ColSpec, DataType, Schema, TensorSpec

from serving.errors import ModelRaised, NotBatchable, ReplicaUnavailable
from serving.probe import smoke_test
from serving.spec import Backend, Batching, ReplicaState
from tests.support.gateway import (
    GatewayServer,
    Publisher,
    entity,
    wait_until_answered,
)
from tests.support.launcher import Launcher
from tests.support.replicas import wait_for_state

pytestmark = pytest.mark.triton

PICKY = """
import time

import mlflow
import numpy as np


class Picky(mlflow.pyfunc.PythonModel):
    # Sum and largest of each row; a negative first number is refused, 99 takes a second.

    def predict(self, context, model_input, params=None):
        rows = np.asarray(model_input)
        if (rows[:, 0] < 0).any():
            raise ValueError("the first number must not be negative")
        if (rows[:, 0] == 99).any():
            time.sleep(1)
        factor = (params or {}).get("factor", 1)
        return np.stack([rows.sum(axis=1) * factor, rows.max(axis=1)], axis=1)


mlflow.models.set_model(Picky())
"""

TABLE = """
import mlflow


class Table(mlflow.pyfunc.PythonModel):
    # A frame with text, numbers and missing values.

    def predict(self, context, model_input, params=None):
        out = model_input.copy()
        out["twice"] = out["amount"] * 2
        out["long"] = out["name"].str.len() > 3
        return out


mlflow.models.set_model(Table())
"""

ANYTHING = """
import mlflow


class Anything(mlflow.pyfunc.PythonModel):
    # Without a signature: says what it got, one word a row.

    def predict(self, context, model_input, params=None):
        kind = type(model_input).__name__
        if kind == "DataFrame":
            return [f"{kind} {row}" for row in model_input.to_dict("records")]
        return [f"{kind} {row}" for row in model_input]


mlflow.models.set_model(Anything())
"""

SUMMARY = """
import mlflow


class Summary(mlflow.pyfunc.PythonModel):
    # One number for the whole batch: cannot be batched.

    def predict(self, context, model_input, params=None):
        return [float(model_input.sum())]


mlflow.models.set_model(Summary())
"""


@pytest.fixture(scope="module")
def picky(launcher: Launcher) -> str:
    signature = mlflow.models.ModelSignature(
        inputs=Schema([TensorSpec(np.dtype("float32"), (-1, -1))])
    )
    return launcher.start("picky", PICKY, signature)


@pytest.fixture
def serve(gateway: GatewayServer, publisher: Publisher, launcher: Launcher) -> Any:
    """Publishes a replica of the launcher; gives the gateway once it routes there."""

    def publish(replica_id: str, address: str, **changes: Any) -> GatewayServer:
        signature = launcher.models[replica_id].signature
        changes = {"signature": signature, "name": replica_id} | changes
        publisher.route(entity(address, **changes))
        deadline = time.monotonic() + 5
        while gateway.ask(b"", timeout_s=5).status_code != 400:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return gateway

    return publish


def expected(rows: list[list[float]], factor: float = 1) -> list[list[float]]:
    return [[sum(row) * factor, max(row)] for row in rows]


def test_many_callers_each_get_their_own_rows(picky: str, serve: Any) -> None:
    gateway = serve("picky", picky)
    bodies = [
        [[float(caller), float(row), 1.0] for row in range(1 + caller % 4)] for caller in range(64)
    ]

    responses = gateway.ask_all([{"inputs": body} for body in bodies])

    assert [r.json() for r in responses] == [{"predictions": expected(b)} for b in bodies]
    timing = dict(part.split(";dur=") for part in responses[0].headers["server-timing"].split(", "))
    assert timing.keys() == {"gateway", "queue", "compute"}
    assert float(timing["compute"]) > 0


def test_a_bad_request_among_good_ones_fails_alone(picky: str, serve: Any) -> None:
    gateway = serve("picky", picky)
    rows = [[-1.0 if n % 8 == 3 else float(n), 2.0] for n in range(48)]

    responses = gateway.ask_all([{"inputs": [row]} for row in rows])

    for row, response in zip(rows, responses, strict=True):
        if row[0] >= 0:
            assert response.json() == {"predictions": expected([row])}
        else:
            assert response.status_code == 400
            assert response.json()["error_code"] == "BAD_REQUEST"
            assert response.json()["message"].endswith(
                "ValueError: the first number must not be negative"
            )
            assert "/" not in response.json()["message"]


def test_shapes_and_parameters_in_flight_at_once_do_not_mix(
    launcher: Launcher, picky: str, serve: Any
) -> None:
    gateway = serve("picky", picky)
    blocker = threading.Thread(target=lambda: gateway.ask({"inputs": [[99, 1]]}))
    blocker.start()
    time.sleep(0.2)  # what follows queues up in Triton behind it and becomes one batch
    bodies = [[[1.0] * (1 + n % 5)] for n in range(30)]

    responses = gateway.ask_all([{"inputs": body} for body in bodies])

    blocker.join()
    assert [r.json() for r in responses] == [{"predictions": expected(b)} for b in bodies]


def test_more_rows_than_the_largest_batch_are_split_and_joined(picky: str, serve: Any) -> None:
    gateway = serve("picky", picky)
    rows = [[float(n), 1.0] for n in range(150)]

    assert gateway.ask({"inputs": rows}).json() == {"predictions": expected(rows)}


def test_a_large_body_is_read_like_a_small_one(picky: str, serve: Any) -> None:
    gateway = serve("picky", picky)
    rows = np.random.default_rng(7).random((20, 2000)).astype(np.float32)

    response = gateway.ask({"inputs": rows.tolist()})

    found = np.array(response.json()["predictions"], dtype=np.float32)
    np.testing.assert_allclose(found[:, 1], rows.max(axis=1))
    np.testing.assert_allclose(found[:, 0], rows.sum(axis=1), rtol=1e-5)


def test_a_table_with_text_and_missing_values(launcher: Launcher, serve: Any) -> None:
    signature = mlflow.models.ModelSignature(
        inputs=Schema([ColSpec(DataType.string, "name"), ColSpec(DataType.double, "amount")])
    )
    gateway = serve("table", launcher.start("table", TABLE, signature))
    names = ["å", "longer", "", "日本語です"]
    wanted = [
        {"name": name, "amount": n + 0.5, "twice": 2 * n + 1.0, "long": len(name) > 3}
        for n, name in enumerate(names)
    ]
    records = [{"name": row["name"], "amount": row["amount"]} for row in wanted]
    split = {"columns": ["amount", "name"], "data": [[r["amount"], r["name"]] for r in records]}
    bodies: list[Any] = [{"dataframe_records": [r]} for r in records]
    bodies += [{"dataframe_split": split}, {"instances": records}]
    bodies += [{"inputs": {key: [r[key] for r in records] for key in ("name", "amount")}}]

    responses = gateway.ask_all(bodies)

    assert [r.json() for r in responses] == [
        *({"predictions": [row]} for row in wanted),
        *({"predictions": wanted} for _ in range(3)),
    ]
    csv = "\n".join(["amount,name", *(f"{r['amount']},{r['name'] or repr('')}" for r in wanted)])
    taken = gateway.ask(csv.encode(), headers={"Content-Type": "text/csv"})
    assert [row["twice"] for row in taken.json()["predictions"]] == [r["twice"] for r in wanted]
    missing = gateway.ask({"dataframe_records": [{"name": "four", "amount": None}]})
    (row,) = missing.json()["predictions"]
    assert "NaN" in missing.text
    assert math.isnan(row.pop("amount"))
    assert math.isnan(row.pop("twice"))
    assert row == {"name": "four", "long": True}
    refused = gateway.ask({"dataframe_records": [{"amount": 1}]})
    assert refused.status_code == 400
    assert "Failed to enforce schema of data" in refused.json()["message"]


def test_a_model_without_a_signature_gets_what_mlflow_would_give(
    launcher: Launcher, serve: Any
) -> None:
    gateway = serve("any", launcher.start("any", ANYTHING, None))
    cases: list[tuple[Any, list[str]]] = [
        ({"inputs": [1, 2]}, ["ndarray 1", "ndarray 2"]),
        ({"inputs": [[1.5]]}, ["ndarray [1.5]"]),
        ({"dataframe_records": [{"a": 1}, {"a": 2}]}, ["DataFrame {'a': 1}", "DataFrame {'a': 2}"]),
        ({"dataframe_split": {"columns": ["b"], "data": [["x"]]}}, ["DataFrame {'b': 'x'}"]),
        ({"instances": [3]}, ["ndarray 3"]),
    ]

    responses = gateway.ask_all([body for body, _ in cases * 4])

    assert [r.json()["predictions"] for r in responses] == [wanted for _, wanted in cases * 4]
    many = gateway.ask({"inputs": list(range(100))})
    assert many.json()["predictions"] == [f"ndarray {n}" for n in range(100)]


def test_both_backends_give_the_same_answers(launcher: Launcher, picky: str, serve: Any) -> None:
    standard = launcher.launch("plain", launcher.models["picky"], backend=Backend.STANDARD)
    bodies: list[Any] = [
        {"inputs": [[1, 2], [3, 4]]},
        {"instances": [[1.5, 2]]},
        {"inputs": [[1, 2]], "client_request_id": "7"},
        {"inputs": [[-1, 2]]},
        {"inputs": [1, 2]},
        {"inputs": [["a", "b"]]},
        {"inputs": {"x": [[1, 2]]}},
        {"dataframe_split": {"columns": ["a"], "data": [[1]]}},
        {},
    ]

    on_triton = serve("picky", picky).ask_all(bodies)
    on_mlflow = serve("picky", standard, backend=Backend.STANDARD).ask_all(bodies)

    for body, ours, theirs in zip(bodies, on_triton, on_mlflow, strict=True):
        assert ours.status_code == theirs.status_code, (body, ours.text, theirs.text)
        if ours.status_code == 200:
            assert ours.json() == theirs.json()
        else:
            words = theirs.json()["message"].removeprefix("Failed to predict data ")
            assert words[-40:] == ours.json()["message"][-40:], (body, ours.text, theirs.text)
    result = smoke_test(
        address=standard,
        backend=Backend.STANDARD,
        signature=launcher.models["picky"].signature,
        body=bodies[0],
        timeout_s=20,
    )
    assert (result.rows_in, result.rows_out) == (2, 2)


def test_a_date_that_is_none_is_mlflow_s_400(launcher: Launcher, serve: Any) -> None:
    signature = mlflow.models.ModelSignature(inputs=Schema([ColSpec(DataType.datetime, "at")]))
    gateway = serve("dates", launcher.start("dates", ANYTHING, signature))

    good = gateway.ask({"dataframe_records": [{"at": "2024-05-06"}]})
    bad = gateway.ask({"dataframe_records": [{"at": "never"}]})

    assert "2024-05-06" in good.json()["predictions"][0]
    assert bad.status_code == 400
    assert "Data is not compatible with model signature" in bad.json()["message"]


def test_a_model_that_cannot_be_batched_is_found(launcher: Launcher, serve: Any) -> None:
    signature = mlflow.models.ModelSignature(
        inputs=Schema([TensorSpec(np.dtype("float64"), (-1, 2))])
    )
    address = launcher.start("summary", SUMMARY, signature)
    gateway = serve("summary", address)

    response = gateway.ask({"inputs": [[1, 2], [3, 4]]})

    assert (response.status_code, response.json()["error_code"]) == (400, "INVALID_STATE")
    with pytest.raises(NotBatchable, match="returned 1 outputs for 2 inputs"):
        smoke_test(
            address=address,
            backend=Backend.TRITON,
            signature=launcher.models["summary"].signature,
            body={"inputs": [[1, 2], [3, 4]]},
            timeout_s=10,
        )


def test_the_smoke_test_counts_rows(launcher: Launcher, picky: str) -> None:
    signature = launcher.models["picky"].signature
    arguments: dict[str, Any] = {"backend": Backend.TRITON, "signature": signature, "timeout_s": 10}

    result = smoke_test(address=picky, body={"inputs": [[1, 2], [3, 4], [5, 6]]}, **arguments)

    assert (result.rows_in, result.rows_out) == (3, 3)
    assert 0 < result.elapsed_ms < 10_000
    with pytest.raises(ModelRaised, match="must not be negative"):
        smoke_test(address=picky, body={"inputs": [[-1, 2]]}, **arguments)
    with pytest.raises(ReplicaUnavailable):
        smoke_test(address="127.0.0.1:1", body={"inputs": [[1, 2]]}, **arguments)


def test_a_killed_triton_costs_its_callers_time_only(
    launcher: Launcher, publisher: Publisher, gateway: GatewayServer
) -> None:
    signature = mlflow.models.ModelSignature(
        inputs=Schema([TensorSpec(np.dtype("float32"), (-1, 2))])
    )
    address = launcher.start("killed", PICKY, signature, batching=Batching(max_batch_size=8))
    publisher.route(entity(address, signature=launcher.models["killed"].signature))
    wait_until_answered(gateway, body={"inputs": [[1, 2]]})
    stop = threading.Event()
    failures: list[str] = []
    answers: list[str] = []

    def caller() -> None:
        while not stop.is_set():
            response = gateway.ask({"inputs": [[3, 4]]}, timeout_s=40)
            good = response.json() == {"predictions": [[7.0, 4.0]]}
            (answers if good else failures).append(response.text)

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for thread in callers:
        thread.start()
    time.sleep(0.5)
    status = launcher.runtime.status("killed")
    assert status is not None
    assert status.server_pid is not None

    os.kill(status.server_pid, signal.SIGKILL)
    restarted = wait_for_state(launcher.runtime, "killed", ReplicaState.READY, restarts=1)
    if restarted.address != address:
        publisher.route(
            entity(str(restarted.address), signature=launcher.models["killed"].signature)
        )
    before = len(answers)
    time.sleep(1.5)
    stop.set()
    for thread in callers:
        thread.join()

    assert failures == []
    assert len(answers) > before > 0
