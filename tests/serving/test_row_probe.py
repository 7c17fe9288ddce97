"""The batch eligibility probe: rows alone against rows in company, on the real Triton."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.errors import InvalidInput, NotBatchable
from serving.example import ExampleRows
from serving.row_probe import Batch, Seen, alike, judge, probe_rows
from serving.runtime.processes import ProcessRuntime
from serving.spec import PythonEnvironment, ReplicaState
from serving.tuning.measure import Target, closed_loop, sweep
from serving.tuning.policy import Setting
from serving.tuning.profile import ProbeResult
from tests.support.model_environment import save_model
from tests.support.replicas import SavedModel, make_spec, wait_for_state

PLAIN, CENTRED, RANDOM, ONE_ROW, LARGE_FAILS = range(5)
# What it does stands in the first column, so that one replica is enough.
MODES = f"""
import mlflow, numpy as np
from mlflow.pyfunc import PythonModel

class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        mode, rows = model_input[0, 0], model_input[:, 1:]
        if mode == {CENTRED}:
            return rows - rows.mean(axis=0)
        if mode == {RANDOM}:
            return rows + np.random.random(rows.shape)
        if mode == {ONE_ROW}:
            return rows[:1]
        if mode == {LARGE_FAILS} and len(rows) > 4:
            raise MemoryError("out of memory")
        return rows * 2

mlflow.models.set_model(Model())
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    directory = tmp_path_factory.mktemp("models") / "modes"
    signature = save_model(directory, MODES, np.zeros((1, 4), dtype=np.float32))
    return SavedModel(directory=directory, signature=signature)


@pytest.fixture(scope="module")
def replica(
    tmp_path_factory: pytest.TempPathFactory,
    model_environment: PythonEnvironment,
    model: SavedModel,
) -> Iterator[tuple[str, int | None]]:
    """A replica's address and its server's process."""
    runtime = ProcessRuntime(tmp_path_factory.mktemp("replicas"), "redis://127.0.0.1:1")
    runtime.launch(make_spec("probed", model_environment, model))
    try:
        status = wait_for_state(runtime, "probed", ReplicaState.READY)
        assert status.address is not None
        yield status.address, status.server_pid
    finally:
        runtime.kill("probed")


def example(model: SavedModel, mode: int, *, rows: int = 3) -> ExampleRows:
    body = {"inputs": [[float(mode), row + 1.0, row * row, 5.0 - row] for row in range(rows)]}
    return ExampleRows(model.signature, body)


def probed(address: str, rows: ExampleRows) -> ProbeResult:
    return probe_rows(address=address, example=rows, most_rows=32, limit_s=20, call_timeout_s=20)


@pytest.mark.triton
def test_a_model_whose_rows_stand_alone_passes(
    replica: tuple[str, int | None], model: SavedModel
) -> None:
    found = probed(replica[0], example(model, PLAIN))

    assert found.rows_checked == 8
    assert found.is_row_independent is True
    assert found.speedup_of_8 is not None


@pytest.mark.triton
def test_a_model_that_subtracts_the_batchs_mean_is_found_out(
    replica: tuple[str, int | None], model: SavedModel
) -> None:
    with pytest.raises(NotBatchable, match=r"row 1 of the input example got .* among 2 rows"):
        probed(replica[0], example(model, CENTRED))


@pytest.mark.triton
def test_a_model_that_never_answers_twice_alike_is_let_pass_and_that_is_said(
    replica: tuple[str, int | None], model: SavedModel
) -> None:
    found = probed(replica[0], example(model, RANDOM))

    assert found.is_row_independent is None
    assert found.rows_checked == 0
    assert "not deterministic" in found.warning


@pytest.mark.triton
def test_a_wrong_number_of_rows_is_found(
    replica: tuple[str, int | None], model: SavedModel
) -> None:
    with pytest.raises(NotBatchable, match="The model returned 1 outputs for 2 inputs"):
        probed(replica[0], example(model, ONE_ROW))


@pytest.mark.triton
def test_a_sweep_stops_at_the_batch_that_the_model_cannot_take(
    replica: tuple[str, int | None], model: SavedModel
) -> None:
    target = Target(
        address=replica[0],
        example=example(model, LARGE_FAILS),
        server_pid=replica[1],
        call_timeout_s=20,
    )

    found = sweep(target, most_rows=32, limit_s=5)

    assert [step.rows for step in found.steps] == [1, 2, 4]
    assert "A call of 8 rows failed" in found.stopped_because
    assert "out of memory" in found.stopped_because
    assert found.row_bytes > 4 * 4 + 3 * 4
    assert found.busy_cores is not None
    assert found.busy_cores > 0
    assert (found.memory_bytes or 0) > 50 * 2**20


@pytest.mark.triton
def test_callers_are_measured_through_the_gateways_own_joining(
    replica: tuple[str, int | None], model: SavedModel
) -> None:
    target = Target(
        address=replica[0],
        example=example(model, PLAIN),
        server_pid=None,
        call_timeout_s=20,
        gateways=2,
    )

    found = closed_loop(target, Setting(max_batch_size=16), callers=8, for_s=0.5)

    assert found.requests_per_s > 0
    assert 0 < found.p50_ms <= found.p99_ms
    assert (found.callers, found.max_batch_size, found.failure) == (8, 16, "")


# ---------------------------------------------------------------- what it means

SEEN = Seen(
    alone=((1.0,), (2.0,)),
    again=(1.0,),
    batches=(Batch(rows=(0, 1, 0, 1, 0, 1, 0, 1), answers=((1.0,), (2.0,)) * 4),),
    one_ms=10.0,
    eight_ms=20.0,
)


def test_eight_rows_that_take_eight_times_as_long_gain_nothing() -> None:
    assert judge(SEEN).speedup_of_8 == 4.0
    assert judge(SEEN).warning == ""

    found = judge(replace(SEEN, eight_ms=79.0))

    assert found.is_row_independent is True
    assert found.warning == (
        "8 rows took 7.9 times as long as 1 (79.0 ms against 10.0 ms): its time grows with each "
        "row, as in a loop over them, so batching gains nothing."
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("text", "text", True),
        ("text", "Text", False),
        (np.float32(0.123), np.float32(0.1230001), True),
        (np.float32(0.1), np.float32(0.2), False),
        (np.array([1.0, 1e-9]), np.array([1.0, 3e-9]), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([1.0, 2.0]), np.array([1.0]), False),
        (float("nan"), float("nan"), True),
        ({"label": "cat", "score": 0.5}, {"label": "cat", "score": 0.5000001}, True),
        ({"label": "cat", "score": 0.5}, {"label": "dog", "score": 0.5}, False),
        ([1, [2, None]], [1, [2, None]], True),
    ],
)
def test_texts_are_compared_exactly_and_floats_nearly(one: Any, other: Any, expected: bool) -> None:
    assert alike(one, other) is expected


# ---------------------------------------------------------------- requests from an example


def rows_in(found: ExampleRows, rows: list[int]) -> list[int]:
    return [found.part(rows).rows, found.rows]


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": ["a", "b"]},
        {"inputs": {"a": [1, 2], "b": ["x", "y"]}},
        {"instances": [[1, 2], [3, 4]]},
        {"dataframe_records": [{"a": 1}, {"a": 2}]},
        {"dataframe_split": {"columns": ["a"], "index": [5, 6], "data": [[1], [2]]}},
    ],
)
def test_rows_are_repeated_in_every_form_of_a_request(body: dict[str, Any]) -> None:
    assert rows_in(ExampleRows(None, body), [0, 1, 2, 3, 4]) == [5, 2]


def test_an_example_without_rows_to_repeat_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        ExampleRows(None, {"inputs": {"a": 1}})
    fixed = {"inputs": '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [2, 3]}}]'}
    with pytest.raises(InvalidInput, match="fixes the number of rows"):
        ExampleRows(fixed, {"inputs": [[1, 2, 3], [4, 5, 6]]})
