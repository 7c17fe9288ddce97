"""The shim's own work: joining requests, cutting answers, failing alone, packing any answer."""

from __future__ import annotations

import datetime
import io
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.models import ModelSignature
from mlflow.pyfunc.scoring_server import predictions_to_json
from mlflow.types import ColSpec, DataType, Schema, TensorSpec

from serving.protocol.answers import join_answers, predictions_json, unpack_answer
from serving.protocol.codec import EntityCodec
from tests.support.scoring import same_json
from tests.support.shim import LocalModel, load_shim, stub_model

TENSOR = TensorSpec(np.dtype("float32"), (-1, -1))


def local(predict: Any, *specs: Any, max_batch_size: int = 32) -> LocalModel:
    schema = Schema(list(specs)) if specs else None
    signature = dict(ModelSignature(schema).to_dict()) if specs else None
    model = stub_model(schema)
    model.predict = lambda data, params=None: predict(data, params)
    return LocalModel(model, signature, max_batch_size)


def batch(model: LocalModel, *bodies: Any) -> list[Any]:
    """Answers of requests that Triton put into one batch; an exception where one failed."""
    items: list[Any] = []
    for body in bodies:
        items += model.read(model.codec.decode(json.dumps(body).encode()), first=len(items))
    answers = model.run(items)
    return [
        answer
        if isinstance(answer, BaseException)
        else json.loads(predictions_json(unpack_answer(bytes(answer))))["predictions"]
        for _, answer in sorted(answers.items())
    ]


# ---------------------------------------------------------------- joining


def test_requests_of_one_shape_share_a_call_and_keep_their_rows() -> None:
    calls: list[Any] = []

    def predict(data: Any, params: Any) -> Any:
        calls.append(data.shape)
        return data * 2

    answers = batch(local(predict, TENSOR), {"inputs": [[1, 2]]}, {"inputs": [[3, 4], [5, 6]]})

    assert answers == [[[2.0, 4.0]], [[6.0, 8.0], [10.0, 12.0]]]
    assert calls == [(3, 2)]


def test_other_shapes_and_parameters_have_their_own_call() -> None:
    calls: list[Any] = []

    def predict(data: Any, params: Any) -> Any:
        calls.append((data.shape, params))
        return data[:, 0]

    answers = batch(
        local(predict, TENSOR),
        {"inputs": [[1, 2]]},
        {"inputs": [[3, 4, 5]]},
        {"inputs": [[6, 7]], "params": {"a": 1}},
        {"inputs": [[8, 9]]},
    )

    assert answers == [[1.0], [3.0], [6.0], [8.0]]
    assert calls == [((2, 2), None), ((1, 3), None), ((1, 2), {"a": 1})]


def test_a_bad_request_fails_alone() -> None:
    def predict(data: Any, params: Any) -> Any:
        if (data < 0).any():
            raise ValueError("no negative numbers")
        return data.sum(axis=1)

    answers = batch(
        local(predict, TENSOR), *({"inputs": [[n, 1]]} for n in (1, 2, -3, 4, 5, 6, 7, 8))
    )

    assert [a for i, a in enumerate(answers) if i != 2] == [
        [2.0],
        [3.0],
        [5.0],
        [6.0],
        [7.0],
        [8.0],
        [9.0],
    ]
    message = load_shim().message_of(answers[2])
    assert message.startswith("Encountered an unexpected error while evaluating the model.")
    assert message.endswith("ValueError: no negative numbers")


def test_where_every_request_fails_the_work_is_bounded() -> None:
    calls = 0

    def predict(data: Any, params: Any) -> Any:
        nonlocal calls
        calls += 1
        raise ValueError("never")

    model = local(predict, TENSOR)
    model.runner.clock = lambda: 0.0
    model.runner.bisections = 10**6

    answers = batch(model, *({"inputs": [[n, 1]]} for n in range(16)))

    assert all(isinstance(answer, ValueError) for answer in answers)
    assert calls == 17


@pytest.mark.parametrize("returned", [1.5, "text", [1], np.zeros((1, 2)), {"a": [1]}, {"a": 1}])
def test_another_number_of_rows_is_an_error(returned: Any) -> None:
    model = local(lambda data, params: returned, TENSOR)

    answers = batch(model, {"inputs": [[1, 2], [3, 4]]}, {"inputs": [[1, 2], [3, 4]]})

    messages = [load_shim().message_of(answer) for answer in answers]
    assert all("for 2 inputs; it cannot be batched" in message for message in messages)


def test_a_request_whose_rows_the_model_drops_fails_alone() -> None:
    model = local(lambda data, params: data[data[:, 0] > 0], TENSOR)

    answers = batch(model, *({"inputs": [[n, 1]]} for n in (1, 2, -3, 4)))

    assert isinstance(answers[2], load_shim().RowMismatch)
    assert answers[:2] + answers[3:] == [[[1.0, 1.0]], [[2.0, 1.0]], [[4.0, 1.0]]]


def test_what_a_failed_call_did_to_its_input_is_not_seen_again() -> None:
    def predict(data: Any, params: Any) -> Any:
        answers = [row.pop("a") for row in data]
        if "bad" in answers:
            raise ValueError("bad")
        return answers

    answers = batch(local(predict), *({"inputs": [{"a": word}]} for word in ("x", "bad", "y")))

    assert answers[0] == ["x"]
    assert isinstance(answers[1], ValueError)
    assert answers[2] == ["y"]


def test_the_model_may_write_to_its_input() -> None:
    def predict(data: Any, params: Any) -> Any:
        data += 1
        return data

    assert batch(local(predict, TENSOR), {"inputs": [[1, 2]]}) == [[[2.0, 3.0]]]


def test_a_model_that_ends_the_process_gets_an_error_instead() -> None:
    def predict(data: Any, params: Any) -> Any:
        raise SystemExit(3)

    (answer,) = batch(local(predict, TENSOR), {"inputs": [[1, 2]]})

    assert isinstance(answer, SystemExit)


def test_without_a_signature_types_do_not_mix() -> None:
    seen: list[Any] = []

    def predict(data: Any, params: Any) -> Any:
        seen.append((data.dtype.kind, data.shape))
        return data

    answers = batch(
        local(predict), {"inputs": [[1, 2]]}, {"inputs": [[1.5, 2]]}, {"inputs": [[3, 4]]}
    )

    assert answers == [[[1, 2]], [[1.5, 2.0]], [[3, 4]]]
    assert seen == [("i", (2, 2)), ("f", (1, 2))]


def test_frames_without_a_signature_are_joined_by_their_columns() -> None:
    seen: list[Any] = []

    def predict(data: Any, params: Any) -> Any:
        seen.append((list(data.columns), len(data)))
        return data.iloc[:, 0]

    answers = batch(
        local(predict),
        {"dataframe_records": [{"a": 1}, {"a": 2}]},
        {"dataframe_records": [{"b": "x"}]},
        {"dataframe_split": {"columns": ["a"], "data": [[3]]}},
    )

    assert answers == [[{"a": 1}, {"a": 2}], [{"b": "x"}], [{"a": 3}]]
    assert seen == [(["a"], 3), (["b"], 1)]


def test_a_frame_with_its_own_index_keeps_it() -> None:
    def predict(data: Any, params: Any) -> Any:
        return data.index.tolist()

    body = {"dataframe_split": {"columns": ["a"], "data": [[1], [2]], "index": ["x", "y"]}}

    assert batch(local(predict), body, body) == [["x", "y"], ["x", "y"]]


def test_dates_and_binary_columns_are_read_by_mlflow() -> None:
    specs = [ColSpec(DataType.datetime, "at"), ColSpec(DataType.binary, "raw")]

    def predict(data: Any, params: Any) -> Any:
        assert str(data.dtypes["at"]) == "datetime64[ns]"
        return [f"{at.year} {raw.decode()}" for at, raw in data.itertuples(index=False)]

    answers = batch(
        local(predict, *specs),
        {"dataframe_records": [{"at": "2024-01-02", "raw": "aGVq"}]},
        {"dataframe_records": [{"at": "2025-01-02", "raw": "aGVq"}]},
    )

    assert answers == [["2024 hej"], ["2025 hej"]]


def test_a_body_that_mlflow_refuses_is_the_callers_fault() -> None:
    model = local(lambda data, params: data, ColSpec(DataType.datetime, "at"))

    with pytest.raises(Exception, match="Data is not compatible with model signature"):
        batch(model, {"dataframe_records": [{"at": "never"}]})


def test_a_signature_with_a_fixed_first_axis_is_never_joined() -> None:
    seen: list[Any] = []

    def predict(data: Any, params: Any) -> Any:
        seen.append(data.shape)
        return 1

    spec = TensorSpec(np.dtype("float32"), (2, 2))

    assert batch(
        local(predict, spec), {"inputs": [[1, 2], [3, 4]]}, {"inputs": [[1, 2], [3, 4]]}
    ) == [1, 1]
    assert seen == [(2, 2), (2, 2)]


@pytest.mark.parametrize(
    "body",
    [
        {"dataframe_records": [{"a": n} for n in range(10)]},
        {"inputs": {"a": [*range(9), 9.5]}},
        {"inputs": [*range(9), "x"]},
    ],
)
def test_a_large_json_request_is_read_whole_and_computed_in_pieces(body: Any) -> None:
    seen: list[Any] = []

    def predict(data: Any, params: Any) -> Any:
        seen.append(data)
        return data["a"] if isinstance(data, (dict, pd.DataFrame)) else data

    pieces = local(predict, max_batch_size=4).predict(body)
    sizes = [len(p["a"]) if isinstance(p, dict) else len(p) for p in seen]

    assert sizes == [4, 4, 2]
    assert pieces == local(predict).predict(body)


def test_an_answer_that_changes_its_kind_between_pieces_is_asked_for_whole() -> None:
    def predict(data: Any, params: Any) -> Any:
        return data if len(data) == 4 else data.tolist()

    model = local(predict, max_batch_size=4)

    assert model.predict({"inputs": list(range(6))}) == list(range(6))


@settings(max_examples=100, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.lists(st.integers(-5, 100), min_size=1, max_size=5),
            st.integers(1, 3),
            st.sampled_from([None, {"a": 1}, {"a": 2}]),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_each_request_gets_the_answer_it_would_get_alone(requests: list[Any]) -> None:
    def predict(data: Any, params: Any) -> Any:
        if (data < 0).any():
            raise ValueError("negative")
        return data.sum(axis=1) + (params or {}).get("a", 0)

    model = local(predict, TENSOR)
    bodies = [
        {"inputs": [[value] * width for value in values], "params": params}
        for values, width, params in requests
    ]

    together = batch(model, *bodies)

    for body, answer in zip(bodies, together, strict=True):
        (alone,) = batch(model, body)
        assert answer == alone or (type(answer), str(answer)) == (type(alone), str(alone))


# ---------------------------------------------------------------- answers


def round_trip(result: Any) -> Any:
    shim = load_shim()
    kind, names, columns, _ = shim.take_apart(result)
    return json.loads(
        predictions_json(unpack_answer(bytes(shim.pack_answer(kind, names, columns))))
    )


def as_mlflow(result: Any) -> Any:
    """What the scoring server writes."""
    text = io.StringIO()
    predictions_to_json(result, text)
    return json.loads(text.getvalue())


@pytest.mark.parametrize(
    "result",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
        np.array([1.5, np.nan, np.inf, -np.inf]),
        np.array([[True], [False]]),
        np.arange(3, dtype=np.uint8),
        np.arange(4).reshape(2, 2)[:, ::-1],
        np.arange(2, dtype=np.float16),
        np.arange(2, dtype=">i4"),
        np.array(["a", "bc"]),
        np.array([{"a": 1}, None], dtype=object),
        np.zeros((0, 3), dtype=np.float32),
        np.zeros((2, 0)),
        pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.5, float("nan")]}),
        pd.DataFrame({"at": pd.to_datetime(["2024-01-01", "2024-05-06"])}),
        pd.DataFrame([[1, 2.5], [3, 4.5]]),
        pd.DataFrame({"vector": [[1, 2], [3, 4]], "record": [{"k": 1}, {"k": 2}]}),
        pd.Series([1, 2, 3]),
        pd.Series(["a", "b"], name="label"),
        ["a", "b"],
        [{"label": "x", "score": np.float32(0.25)}, {"label": "y", "score": 1}],
        [[1], [2, 3]],
        [np.arange(3), np.arange(2)],
        [float("nan"), 1.0],
        [None, True, 3],
        [datetime.date(2024, 1, 2), b"bytes"],
        {"a": np.arange(3), "b": ["x", "y", "z"]},
        {"a": np.ones((2, 2), dtype=np.float32), "b": [1.5, float("nan")]},
        {"label": "x", "scores": [1, 2]},
        {"label": float("nan")},
        "text",
        3.5,
        None,
        {},
        [],
    ],
    ids=str,
)
def test_answers_are_those_of_mlflow(result: Any) -> None:
    assert same_json(round_trip(result), as_mlflow(result))


def test_torch_tensors_are_answers_too() -> None:
    whole = torch.ones(2, 2, requires_grad=True)
    half = torch.ones(2, dtype=torch.bfloat16)

    assert round_trip(whole) == {"predictions": [[1.0, 1.0], [1.0, 1.0]]}
    assert round_trip({"a": half, "b": whole}) == {
        "predictions": {"a": [1.0, 1.0], "b": [[1.0, 1.0], [1.0, 1.0]]}
    }


def test_an_answer_that_json_cannot_hold_is_an_error() -> None:
    (answer,) = batch(local(lambda data, params: [object()], TENSOR), {"inputs": [[1, 2]]})

    assert "type object which JSON cannot hold" in str(answer)


@settings(max_examples=100, deadline=None)
@given(rows=st.integers(0, 20), most=st.integers(1, 6), kind=st.sampled_from("nfsdl"))
def test_parts_of_an_answer_join_to_the_whole(rows: int, most: int, kind: str) -> None:
    numbers = np.arange(rows, dtype=np.float32)
    whole: Any = {
        "n": numbers.reshape(rows, 1),
        "f": pd.DataFrame({"a": numbers, "b": [str(n) for n in numbers]}),
        "s": pd.Series(numbers),
        "d": {"x": numbers, "y": numbers.tolist()},
        "l": [{"n": n} for n in numbers.tolist()],
    }[kind]
    shim = load_shim()
    kind_name, names, columns, _ = shim.take_apart(whole)
    starts = range(0, max(rows, 1), most)

    parts = [
        bytes(shim.pack_answer(kind_name, names, [c[s : s + most] for c in columns]))
        for s in starts
    ]

    joined = join_answers([unpack_answer(part) for part in parts])
    assert json.loads(predictions_json(joined)) == round_trip(whole)


def test_text_travels_unharmed() -> None:
    texts = ["", "å", "日本", "a" * 300, "null"]
    specs = [ColSpec(DataType.string, "t"), ColSpec(DataType.long, "n")]

    def predict(data: Any, params: Any) -> Any:
        return data["t"].tolist()

    bodies = [
        {"dataframe_split": {"columns": ["n", "t"], "data": [[i, t]]}} for i, t in enumerate(texts)
    ]

    assert batch(local(predict, *specs), *bodies) == [[t] for t in texts]


def test_the_header_of_an_answer_keeps_buffers_aligned() -> None:
    shim = load_shim()
    for names in (["a"], ["ab"], ["abc"]):
        packed = shim.pack_answer("dict", names, [np.arange(3, dtype=np.int8)])
        answer = unpack_answer(bytes(packed))
        assert len(packed) % 8 == 0
        assert answer.columns[0].tolist() == [0, 1, 2]


def test_a_codec_is_made_for_every_signature() -> None:
    assert EntityCodec(None, 0).decode(b'{"inputs": 5}').rows == 1
