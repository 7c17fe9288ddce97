"""The shim's own functions, loaded outside of Triton, and a model run through them.

Only Triton's Python module has a stand-in: it exists nowhere but inside Triton.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from serving.protocol.body import Format
from serving.protocol.codec import Decoded, EntityCodec
from serving.triton.shim import SHIM_FILES


def load_shim() -> ModuleType:
    """The module that Triton loads as a model."""
    if "shoal_shim" in sys.modules:
        return sys.modules["shoal_shim"]
    stand_in = ModuleType("triton_python_backend_utils")
    sys.modules.setdefault("triton_python_backend_utils", stand_in)
    for file in sorted(SHIM_FILES, key=lambda file: file.name == "model.py"):
        name = "shoal_shim" if file.name == "model.py" else file.stem
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules["shoal_shim"]


class LocalModel:
    """An MLflow model behind the shim's reader and runner, with the gateway's codec before it."""

    def __init__(self, model: Any, signature: Any, max_batch_size: int = 32) -> None:
        self.shim = load_shim()
        self.codec = EntityCodec(signature, max_batch_size)
        # As it travels to the shim: through JSON.
        self.plan = json.loads(json.dumps(self.codec.plan.to_json()))
        self.reader = self.shim.Reader(self.plan, model)
        self.runner = self.shim.Runner(
            lambda data, params: model.predict(data, params=params), max_rows=max_batch_size
        )

    def read(self, decoded: Decoded, first: int = 0) -> list[Any]:
        """The shim's items of a decoded request's parts."""
        return [
            self.reader.read(first + position, list(part.arrays), decoded.params)
            for position, part in enumerate(decoded.parts)
        ]

    def run(self, items: list[Any]) -> dict[int, Any]:
        """One dynamic batch: position to packed answer or exception."""
        groups: dict[Any, list[Any]] = {}
        for item in items:
            groups.setdefault(item.key or item.position, []).append(item)
        answers: dict[int, Any] = {}
        for group in groups.values():
            answers.update(self.runner.run(group))
        return answers

    def predict(self, body: object) -> Any:
        """The predictions that a caller gets for one request."""
        return self.ask(json.dumps(body).encode())

    def ask(self, raw: bytes, form: Format = Format.JSON) -> Any:
        """The predictions that a caller gets for one body."""
        decoded = self.codec.decode(raw, form)
        answers = self.run(self.read(decoded))
        for answer in answers.values():
            if isinstance(answer, BaseException):
                raise answer
        outputs = [bytes(answers[position]) for position in range(len(decoded.parts))]
        return json.loads(self.codec.encode([self.codec.answer(outputs)]))["predictions"]


def stub_model(schema: Any = None, predict: Any = None) -> Any:
    """What the shim's reader asks of a loaded model."""
    metadata = SimpleNamespace(
        get_input_schema=lambda: schema, _is_signature_from_type_hint=lambda: False
    )
    return SimpleNamespace(metadata=metadata, predict=predict or (lambda data, params: data))


def rows_of(answer: Any) -> int:
    """Rows in an ndarray, frame or list."""
    return len(np.asarray(answer))
