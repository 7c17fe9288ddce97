"""The Query tab's binary snippet for each form of request; that it runs is tested end to end."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from portal.endpoints.models import Endpoint
from portal.endpoints.pages import snippets

VECTOR = [{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 2]}}]
NAMED = [{"type": "tensor", "name": "x", "tensor-spec": {"dtype": "int64", "shape": [-1]}}]
COLUMNS = [{"type": "string", "name": "a"}, {"type": "double", "name": "b"}]


@pytest.mark.parametrize(
    ("inputs", "body", "expected"),
    [
        (VECTOR, {"inputs": [[1, 2]]}, {"input_0": ("float32", [[1, 2]])}),
        (NAMED, {"inputs": {"x": [3]}}, {"x": ("int64", [3])}),
        (NAMED, {"instances": [{"x": 3}]}, {"x": ("int64", [3])}),
        (
            COLUMNS,
            {"dataframe_split": {"columns": ["b", "a"], "data": [[1.5, "u"]]}},
            {"a": ("object", ["u"]), "b": ("float64", [1.5])},
        ),
        (
            COLUMNS,
            {"dataframe_records": [{"a": "u", "b": 1.5}]},
            {"a": ("object", ["u"]), "b": ("float64", [1.5])},
        ),
        (None, {"inputs": [1]}, {"json": ("object", ['{"inputs": [1]}'])}),
        (COLUMNS, {"dataframe_split": 7}, {"json": ("object", ['{"dataframe_split": 7}'])}),
        (COLUMNS, [1], {"json": ("object", ["[1]"])}),
    ],
)
def test_the_binary_snippet_sends_the_request_s_values_as_tensors(
    inputs: Any, body: Any, expected: dict[str, tuple[str, list[Any]]]
) -> None:
    signature = None if inputs is None else {"inputs": json.dumps(inputs)}

    found = snippets.for_endpoint(
        Endpoint(name="e"), "https://shoal.example", json.dumps(body), signature
    )

    code = found[-1].code
    names: dict[str, Any] = {"np": np}
    exec(code[code.index("arrays = {") : code.index("inputs = []")], names)
    arrays = names["arrays"]
    assert {k: (a.dtype.name, a.tolist()) for k, a in arrays.items()} == expected
    assert '"shoal.example/serving-endpoints/e", ssl=True' in code
