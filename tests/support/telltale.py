"""Models that tell of each row what they were given, and random requests for them.

A row says its kind, types, values and the parameters, so that an answer shows all that could go
wrong on its way: other rows, types, columns, parameters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec
from mlflow.types.schema import Array

from serving.spec import PythonEnvironment, ReplicaState
from tests.support.launcher import Launcher
from tests.support.model_environment import save_model
from tests.support.replicas import SavedModel, make_spec, wait_for_state

TELLTALE = """
import mlflow
import numpy as np


def rows_of(data):
    if type(data).__name__ == "DataFrame":
        types = [str(kind) for kind in data.dtypes]
        for _, row in data.iterrows():
            cells = [None if x is None or x is not x and x != x else x for x in row]
            yield dict(zip(data.columns, map(list, zip(types, cells))))
    elif isinstance(data, dict):
        for position in range(len(next(iter(data.values())))):
            yield {k: [str(v.dtype), v[position].tolist()] for k, v in data.items()}
    elif isinstance(data, np.ndarray):
        for row in data:
            yield [str(data.dtype), row.tolist()]
    else:
        yield from data


class Telltale(mlflow.pyfunc.PythonModel):
    # A row with 666 in it is refused; one with 404 is left out of the answer.

    def predict(self, context, model_input, params=None):
        rows = list(rows_of(model_input))
        if any("666" in str(row) for row in rows):
            raise ValueError("the number of the beast")
        kind = type(model_input).__name__
        return [
            {"kind": kind, "row": row, "params": params} for row in rows if "404" not in str(row)
        ]


mlflow.models.set_model(Telltale())
"""

PARAMS = ParamSchema([ParamSpec("n", "long", 3), ParamSpec("word", "string", "w")])
SIGNATURES: dict[str, ModelSignature | None] = {
    "array": ModelSignature(
        inputs=Schema(
            [
                TensorSpec(np.dtype("int64"), (-1, -1), "ids"),
                TensorSpec(np.dtype("float32"), (-1, -1, 2), "x"),
            ]
        ),
        params=PARAMS,
    ),
    "table": ModelSignature(
        inputs=Schema(
            [ColSpec("long", "a"), ColSpec("string", "b"), ColSpec("boolean", "c")],
        ),
        params=PARAMS,
    ),
    "maybe": ModelSignature(
        inputs=Schema(
            [
                ColSpec("long", "a"),
                ColSpec("string", "b", required=False),
                ColSpec("double", "d", required=False),
                ColSpec(Array("double"), "v", required=False),
            ]
        ),
        params=PARAMS,
    ),
    "empty": None,  # no signature
}
ODD_VALUES: tuple[Any, ...] = (None, 1.5, "x", 2**40, [1], {}, True)


def launch(
    launcher: Launcher, names: Sequence[str], environment: PythonEnvironment, suffix: str = ""
) -> dict[str, tuple[str, SavedModel]]:
    """Start a replica for each signature at once; gives address and model when they are ready."""
    saved: dict[str, SavedModel] = {}
    for name in names:
        directory, signature = launcher.path / f"telltale-{name}{suffix}", SIGNATURES[name]
        found = save_model(directory, TELLTALE, **({"signature": signature} if signature else {}))
        saved[name] = SavedModel(directory=directory, signature=found)
        launcher.runtime.launch(make_spec(f"{name}{suffix}", environment, saved[name]))
    replicas = {}
    for name, model in saved.items():
        status = wait_for_state(
            launcher.runtime, f"{name}{suffix}", ReplicaState.READY, ReplicaState.CRASHED
        )
        assert status.state is ReplicaState.READY, status.message
        assert status.address is not None
        replicas[name] = (status.address, model)
    return replicas


class Requests:
    """Random requests, the same ones in every run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.random = random.Random(name)

    def some(self, count: int) -> list[dict[str, Any]]:
        """So many requests."""
        return [self.body() for _ in range(count)]

    def number(self) -> int:
        """One that is refused or dropped now and then."""
        return self.random.choice([666, 404]) if self.random.random() < 0.03 else self.small()

    def small(self) -> int:
        """An ordinary one."""
        return self.random.randrange(100)

    def text(self) -> str:
        """Texts of different lengths."""
        return self.random.choice(["", "å", "日本", "x" * self.random.randrange(40)])

    def body(self) -> dict[str, Any]:
        """One request."""
        rows = self.random.choice([1, 1, 1, 2, 3])
        body = self.tensors(rows) if self.name == "array" else self.table(rows)
        if self.name == "empty" and self.random.random() < 0.5:
            width = self.random.randrange(1, 4)
            kinds: list[Callable[[], Any]] = [self.number, self.text, lambda: self.small() + 0.5]
            of_a_kind = self.random.choice(kinds)
            body = {"inputs": [[of_a_kind() for _ in range(width)] for _ in range(rows)]}
        if self.random.random() < 0.15:
            self.spoil(body)
        choices = [None, None, {}, {"n": 1}, {"word": "å", "n": 2}, {"n": "x"}, [1], {"other": 1}]
        params = self.random.choice(choices)
        return body if params is None else body | {"params": params}

    def tensors(self, rows: int) -> dict[str, Any]:
        """Named tensors; now and then of different lengths."""
        width, depth = self.random.randrange(1, 4), self.random.randrange(1, 3)
        others = rows + (self.random.random() < 0.1)
        return {
            "inputs": {
                "ids": [[self.number() for _ in range(width)] for _ in range(rows)],
                "x": [[[self.small() / 4] * 2 for _ in range(depth)] for _ in range(others)],
            }
        }

    def table(self, rows: int) -> dict[str, Any]:
        """A frame in one of its forms."""
        makers: dict[str, Callable[[], Any]] = {
            "a": self.number,
            "b": self.text,
            "c": lambda: self.random.random() < 0.5,
            "d": lambda: self.random.choice([None, self.small() / 8]),
            "v": lambda: [self.small() / 2] * self.random.randrange(3),
        }
        names = list("abc" if self.name == "table" else "abdv")
        if self.name != "table":
            names = ["a", *(name for name in names[1:] if self.random.random() < 0.6)]
        records = [{name: makers[name]() for name in names} for _ in range(rows)]
        form = self.random.choice(["dataframe_records", "dataframe_split", "instances"])
        if form != "dataframe_split":
            return {form: records}
        value: dict[str, Any] = {"columns": names, "data": [list(r.values()) for r in records]}
        if self.random.random() < 0.3:
            value["index"] = self.random.choice([list(range(rows)), ["label"] * rows])
        return {form: value}

    def spoil(self, body: dict[str, Any]) -> None:
        """Put something odd into it."""
        (value,) = body.values()
        while isinstance(value, (dict, list)) and value:
            keys = list(value) if isinstance(value, dict) else range(len(value))
            key = self.random.choice(keys)
            if not isinstance(value[key], (dict, list)) or self.random.random() < 0.2:
                value[key] = self.random.choice(ODD_VALUES)
                return
            value = value[key]
