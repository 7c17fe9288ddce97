"""Answers and refusals compared with MLflow's own scoring code, for generated models and requests.

`--hypothesis-profile=long` runs ten times as many cases; see `tests/conftest.py`.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlflow.pyfunc.scoring_server import predictions_to_json
from mlflow.types import ColSpec, Schema, TensorSpec

from serving.protocol.answers import join_answers, predictions_json, unpack_answer
from serving.protocol.plan import InputKind
from tests.support.model_results import results
from tests.support.scoring import BothSides, difference, plain_words, quiet, same_json
from tests.support.scoring_requests import (
    Request,
    csv_requests,
    raw_bodies,
    scoring_requests,
)
from tests.support.shim import load_shim


def cases(times: int) -> settings:
    """Settings for so many times the profile's number of cases."""
    name = settings.get_current_profile_name()
    profile = settings.get_profile(name)
    return settings(
        derandomize=name == "default",  # the long run is the one that looks for new cases
        max_examples=profile.max_examples * times,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def compare(request: Request) -> None:
    """Ask both sides; the model must see the same data, the caller the same answer."""
    both = BothSides(request.inputs, request.params)

    theirs = both.ask_mlflow(request.raw, request.content_type)
    expected = both.last_seen()
    ours = both.ask_shoal(request.raw, request.content_type)
    seen = both.last_seen()

    if theirs.status == 500:  # MLflow's server did not foresee it
        assert ours.status in {200, 400}, ours
        return
    if "which is for chat" in ours.message:  # MLflow hands such bodies to the model whole
        assert ours.status == 400
        return
    assert (ours.status, ours.code) == (theirs.status, theirs.code), (ours, theirs)
    shows_data = both.local.codec.plan.kind is InputKind.JSON
    assert plain_words(ours.message, shows_data=shows_data) == plain_words(
        theirs.message, shows_data=shows_data
    )
    if theirs.status == 200:
        assert seen is not None
        assert expected is not None
        assert difference(seen[0], expected[0]) == ""
        assert repr(seen[1]) == repr(expected[1])
        assert same_json(ours.predictions, theirs.predictions)


@cases(6)
@given(scoring_requests())
def test_a_request_is_read_or_refused_as_by_mlflow(request: Request) -> None:
    compare(request)


@cases(2)
@given(csv_requests())
def test_a_table_as_csv_is_read_or_refused_as_by_mlflow(request: Request) -> None:
    compare(request)


@cases(2)
@given(raw_bodies())
def test_a_body_that_is_no_json_is_refused_as_by_mlflow(request: Request) -> None:
    compare(request)


@cases(6)
@given(results(), st.integers(1, 4))
def test_an_answer_is_written_as_by_mlflow(result: Any, most_rows: int) -> None:
    shim = load_shim()
    text = io.StringIO()
    with quiet():
        try:
            predictions_to_json(result, text)
        except TypeError:  # more is written than by MLflow, whose server answers 500
            return
        kind, names, columns, rows = shim.take_apart(result)
        whole = shim.pack_answer(kind, names, columns)
        starts = range(0, max(rows or 1, 1), most_rows if rows else 1)
        parts = [
            shim.pack_answer(
                kind, names, columns if rows is None else [c[s : s + most_rows] for c in columns]
            )
            for s in starts
        ]

    expected = json.loads(text.getvalue())
    for packed in ([whole], parts):
        joined = join_answers([unpack_answer(bytes(part)) for part in packed])
        assert same_json(json.loads(predictions_json(joined)), expected)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/json; charset=latin-1",
        "application/json; format=pandas-split",
        "application/json;",
        "text/csv; charset=utf-8",
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
    ],
)
def test_a_content_type_is_taken_or_refused_as_by_mlflow(content_type: str) -> None:
    both = BothSides(Schema([ColSpec("double", "a")]))
    raw = b"a\n1\n" if "csv" in content_type else b'{"inputs": {"a": [1]}}'

    theirs = both.ask_mlflow(raw, content_type)
    ours = both.ask_shoal(raw, content_type)

    # MLflow answers 415, which the clients take for a fault of the server that may pass.
    assert ours.status == {415: 400}.get(theirs.status, theirs.status)
    assert ours.message == theirs.message
    assert ours.predictions == theirs.predictions


def test_a_table_as_parquet_is_refused_in_mlflow_s_words_where_nothing_reads_it() -> None:
    import numpy as np

    for inputs in (
        None,
        Schema([ColSpec("double", "a")]),
        Schema([TensorSpec(np.dtype("f4"), (-1,))]),
    ):
        both = BothSides(inputs)

        theirs = both.ask_mlflow(b"PAR1", "application/vnd.apache.parquet")
        ours = both.ask_shoal(b"PAR1", "application/vnd.apache.parquet")

        assert (ours.status, ours.code, ours.message) == (400, theirs.code, theirs.message)
