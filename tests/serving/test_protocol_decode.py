"""What a request's body becomes, compared with MLflow's own parser and schema enforcement."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.models import ModelSignature
from mlflow.models.utils import _enforce_schema
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from mlflow.utils import proto_json_utils

from serving.errors import InvalidInput
from serving.protocol.codec import EntityCodec
from serving.protocol.plan import InputKind, plan_inputs
from tests.support.shim import LocalModel, stub_model

FIELDS = ("inputs", "instances", "dataframe_split", "dataframe_records")


def signature(*specs: Any) -> dict[str, Any]:
    return dict(ModelSignature(Schema(list(specs))).to_dict())


def tensor(
    dtype: str = "float32", shape: tuple[int, ...] = (-1, 3), name: str | None = None
) -> Any:
    return TensorSpec(np.dtype(dtype), shape, name)


def mlflow_reads(specs: list[Any], body: dict[str, Any]) -> Any:
    """What MLflow's scoring server hands to the model."""
    schema = Schema(specs)
    field, value = next((f, v) for f, v in body.items() if f in FIELDS)
    if field in {"inputs", "instances"}:
        data = proto_json_utils.parse_tf_serving_input({field: value}, schema=schema)
    else:
        data = proto_json_utils.dataframe_from_parsed_json(value, field[10:], schema)
    return _enforce_schema(data, schema)


def model_gets(specs: list[Any], body: dict[str, Any]) -> Any:
    """What our codec and the shim's reader hand to the model."""
    local = LocalModel(stub_model(Schema(specs)), signature(*specs), max_batch_size=10_000)
    items = local.read(local.codec.decode(json.dumps(body).encode()))
    assert len(items) == 1
    return items[0].take()


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for name in theirs:
            assert_same(ours[name], theirs[name])
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert list(ours.columns) == list(theirs.columns)
        assert [str(t) for t in ours.dtypes] == [str(t) for t in theirs.dtypes]
        assert ours.to_dict("list") == theirs.to_dict("list")


# ---------------------------------------------------------------- tensors

numbers = {
    "f": st.floats(-1e4, 1e4, width=16) | st.integers(-1000, 1000),
    "i": st.integers(-128, 127),
    "u": st.integers(0, 255),
    "b": st.booleans(),
}


@settings(max_examples=100, deadline=None)
@given(
    dtype=st.sampled_from(["float32", "float64", "int64", "int32", "uint8", "uint64"]),
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    data=st.data(),
)
def test_a_large_body_reads_like_a_small_one(dtype: str, shape: list[int], data: Any) -> None:
    size = int(np.prod(shape))
    pattern = data.draw(st.lists(numbers[np.dtype(dtype).kind], min_size=1, max_size=7))
    value = np.resize(np.array(pattern, dtype=object), size).reshape(shape).tolist()
    codec = EntityCodec(signature(tensor(dtype, (-1,) * len(shape))), 10_000)
    small = orjson.dumps({"inputs": value, "params": {"a": [1, 2]}})
    large = small[:-1] + b" " * 20_000 + small[-1:]

    ours, expected = codec.decode_quickly(large), codec.decode_quickly(small)

    assert ours is not None
    assert expected is not None
    assert ours.params == expected.params == '{"a":[1,2]}'
    np.testing.assert_array_equal(ours.parts[0].arrays[0], expected.parts[0].arrays[0])
    assert ours.parts[0].arrays[0].dtype == expected.parts[0].arrays[0].dtype


@pytest.mark.parametrize("padding", [0, 20_000])
@pytest.mark.parametrize(
    "text",
    [
        "[[1,2],[3]]",
        "[[[1],[2],[3]]]",
        "[1,2,3]",
        "[[1,2,3,4]]",
        "[[1,2,[3]]]",
        "[[[1,2],[],[3]]]",
        '[["a","b","c"]]',
        "[[1,2,{}]]",
        "7",
        '{"x": [[1,2,3]]}',
        "[]",
    ],
)
def test_an_array_of_another_shape_is_refused_as_mlflow_words_it(text: str, padding: int) -> None:
    codec = EntityCodec(signature(tensor()), 8)

    with pytest.raises(InvalidInput) as caught:
        codec.decode(b'{"inputs":' + text.encode() + b" " * padding + b"}")

    with pytest.raises(Exception) as expected:  # noqa: PT011 - MLflow raises what it likes
        mlflow_reads([tensor()], {"inputs": json.loads(text)})
    assert str(expected.value) in caught.value.message
    assert caught.value.status == 400


def test_a_wrong_shape_says_expected_and_got() -> None:
    codec = EntityCodec(signature(tensor(shape=(-1, 64))), 8)

    with pytest.raises(InvalidInput, match="Failed to enforce schema of data") as caught:
        codec.decode(b'{"inputs": [[1, 2, 3]]}')

    assert "Shape of input (1, 3) does not match expected shape (-1, 64)" in caught.value.message


@pytest.mark.parametrize(
    ("dtype", "value", "read"), [("int64", 1.9, 1), ("bool", 2, True), ("bool", None, False)]
)
def test_a_value_of_another_type_is_cast_as_mlflow_does(dtype: str, value: Any, read: Any) -> None:
    codec = EntityCodec(signature(tensor(dtype, (-1, 2))), 8)

    decoded = codec.decode(json.dumps({"inputs": [[1, value]]}).encode())

    assert decoded.parts[0].arrays[0].tolist() == [[1, read]]


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 300), ("int8", -200), ("uint64", -1)])
def test_a_number_that_the_type_cannot_hold_is_refused(dtype: str, value: int) -> None:
    codec = EntityCodec(signature(tensor(dtype, (-1, 2))), 8)

    with pytest.raises(InvalidInput, match="Invalid input"):
        codec.decode(json.dumps({"inputs": [[1, value]]}).encode())


def test_inputs_of_different_lengths_travel_filled_up_and_alone() -> None:
    specs = [tensor(name="a"), tensor(name="b")]
    body = {"inputs": {"a": [[1, 2, 3]], "b": [[1, 2, 3], [4, 5, 6]]}}
    codec = EntityCodec(signature(*specs), 8)

    assert codec.decode(json.dumps(body).encode()).is_alone
    assert_same(model_gets(specs, body), mlflow_reads(specs, body))


def test_inputs_of_different_lengths_cannot_be_cut() -> None:
    codec = EntityCodec(signature(tensor(name="a"), tensor(name="b")), 2)
    body = {"inputs": {"a": [[1, 2, 3]], "b": [[1, 2, 3]] * 3}}

    with pytest.raises(InvalidInput, match="such requests may have 2 rows"):
        codec.decode(json.dumps(body).encode())


def test_a_request_of_more_rows_than_the_model_takes_is_cut() -> None:
    codec = EntityCodec(signature(tensor()), 4)

    decoded = codec.decode(json.dumps({"inputs": np.arange(30).reshape(10, 3).tolist()}).encode())

    assert [part.rows for part in decoded.parts] == [4, 4, 2]
    joined = np.concatenate([part.arrays[0] for part in decoded.parts])
    np.testing.assert_array_equal(joined, np.arange(30).reshape(10, 3))


def test_a_request_without_rows_still_asks_the_model() -> None:
    specs = [ColSpec(DataType.double, "a"), ColSpec(DataType.string, "b")]
    body = {"dataframe_split": {"columns": ["a", "b"], "data": []}}

    assert_same(model_gets(specs, body), mlflow_reads(specs, body))


# ---------------------------------------------------------------- columns


def test_an_index_of_its_own_goes_with_the_frame_and_alone() -> None:
    specs = [ColSpec(DataType.double, "a")]
    codec = EntityCodec(signature(*specs), 8)
    usual, own = (
        {"dataframe_split": {"columns": ["a"], "data": [[1], [2]], "index": index}}
        for index in ([0, 1], ["x", "y"])
    )

    assert not codec.decode(json.dumps(usual).encode()).is_alone
    assert codec.decode(json.dumps(own).encode()).is_alone
    assert list(model_gets(specs, own).index) == ["x", "y"]


def test_a_missing_truth_value_stays_missing_where_mlflow_lets_it() -> None:
    specs = [ColSpec(DataType.boolean, "a"), ColSpec(DataType.long, "b")]
    body = {"inputs": [{"a": True, "b": 1}, {"b": 2}]}

    frame = model_gets(specs, body)

    assert frame["a"].dtype == object
    assert frame["a"].isna().tolist() == [False, True]


def test_anything_passes_through_a_text_column_as_with_mlflow() -> None:
    specs = [ColSpec(DataType.string, "a")]
    body = {"dataframe_records": [{"a": 1}, {"a": ["x"]}, {"a": "y"}, {"a": None}]}

    assert_same(model_gets(specs, body), mlflow_reads(specs, body))


def test_a_missing_column_is_named_as_mlflow_does() -> None:
    codec = EntityCodec(signature(ColSpec(DataType.double, "a"), ColSpec(DataType.string, "b")), 8)

    with pytest.raises(InvalidInput, match="Failed to enforce schema") as caught:
        codec.decode(b'{"dataframe_records": [{"a": 1.0}]}')

    assert "Model is missing inputs ['b']" in caught.value.message


def test_a_missing_text_stays_missing() -> None:
    specs = [ColSpec(DataType.string, "a")]

    frame = model_gets(specs, {"dataframe_records": [{"a": "x"}, {"a": None}]})

    assert frame["a"].isna().tolist() == [False, True]


def test_numbers_as_text_are_read_as_mlflow_reads_them() -> None:
    specs = [ColSpec(DataType.double, "a")]

    frame = model_gets(specs, {"dataframe_records": [{"a": "1.5"}]})

    assert frame["a"].tolist() == [1.5]


# ---------------------------------------------------------------- plans


def test_each_signature_has_its_way() -> None:
    column = ColSpec(DataType.double, "a")
    ways = {
        InputKind.TENSORS: [tensor()],
        InputKind.COLUMNS: [column, ColSpec(DataType.string, "b")],
    }
    other = [
        [ColSpec(DataType.double, "a", required=False)],
        [ColSpec(DataType.datetime, "a")],
        [ColSpec(DataType.binary, "a")],
        [ColSpec(DataType.double)],
        [tensor("str")],
        [tensor("object")],
        [tensor(shape=(2, 3))],
    ]

    for way, specs in ways.items():
        assert plan_inputs(signature(*specs)).kind is way
    for specs in other:
        assert plan_inputs(signature(*specs)).kind is InputKind.JSON
    assert plan_inputs(None).kind is InputKind.JSON
    assert not plan_inputs(signature(tensor(shape=(2, 3)))).is_joinable


def test_names_that_triton_would_not_take_are_replaced() -> None:
    plan = plan_inputs(
        signature(
            *(ColSpec(DataType.double, name) for name in ("out", "a b", "é", "ok", "input_1"))
        )
    )

    assert [i.name for i in plan.inputs] == ["input_0", "input_1", "input_2", "ok", "input_4"]
    assert [i.key for i in plan.inputs] == ["out", "a b", "é", "ok", "input_1"]


def test_a_scalar_row_has_one_dimension_for_triton() -> None:
    plan = plan_inputs(signature(tensor(shape=(-1,))))

    assert plan.inputs[0].dims == (1,)


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "valid JSON"),
        (b"{", "valid JSON"),
        (b"\xff\xfe{}", "valid JSON"),
        (b'{"inputs": [1]}\x00', "valid JSON"),
        (b'{"inputs": ["\\u0000"]}', "NUL"),
        (b"[" * 100_000, "too deeply"),
        (b"[1]", "Received a list"),
        (b"3", "exactly one of the input fields"),
        (b"null", "exactly one of the input fields"),
        (b"{}", "exactly one of the input fields"),
        (b'{"data": [1]}', "exactly one of the input fields"),
        (b'{"inputs": [1], "instances": [1]}', "exactly one of the input fields"),
        (b'{"messages": []}', "custom model"),
        (b'{"inputs": ["a"], "prompt": "x"}', "custom model"),
        (b'{"inputs": [1], "stream": true}', "stream"),
    ],
)
def test_a_bad_body_is_a_clear_error(raw: bytes, words: str) -> None:
    for specs in ([tensor("str", (-1,))], [ColSpec(DataType.string, "a")]):
        with pytest.raises(InvalidInput, match=words):
            EntityCodec(signature(*specs), 8).decode(raw)


def test_fields_that_are_not_for_the_model_are_ignored() -> None:
    codec = EntityCodec(signature(tensor()), 8)
    body = {
        "inputs": [[1, 2, 3]],
        "client_request_id": "7",
        "usage_context": {"a": "b"},
        "extra_params": {},
    }

    decoded = codec.decode(json.dumps(body).encode())

    assert decoded.rows == 1
    assert decoded.params == ""


def test_nan_is_read_as_mlflow_reads_it() -> None:
    codec = EntityCodec(signature(tensor()), 8)

    decoded = codec.decode(b'{"inputs": [[NaN, Infinity, null]]}')

    np.testing.assert_array_equal(decoded.parts[0].arrays[0], [[np.nan, np.inf, np.nan]])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_no_body_breaks_the_reader(raw: bytes) -> None:
    codec = EntityCodec(signature(tensor()), 8)

    with suppress(InvalidInput):
        codec.decode(raw)
