"""How rows are written into a request and read from the answer, for each protocol measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import requests

from tests.bench.workloads import Array

INPUT, OUTPUT = "input_0", "output_0"
DATATYPES = {"float32": "FP32", "int64": "INT64"}
LENGTH = "Inference-Header-Content-Length"
SHOWN = 300  # characters of a refusal


class WrongAnswer(Exception):
    """A server refused the request, or its numbers are not the module's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request's content and the headers that describe it."""

    content: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A protocol: rows to a body, and an answer to rows."""

    encode: Callable[[Array], Body]
    decode: Callable[[bytes, Mapping[str, str]], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server that can be asked.

    Attributes:
        headers: Sent with each request, such as the token.
    """

    url: str
    form: Form
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self, rows: Array) -> Body:
        """The request for these rows, as the load sends it too."""
        body = self.form.encode(rows)
        return Body(content=body.content, headers={**body.headers, **self.headers})

    def ask(self, rows: Array, *, timeout_s: float = 120) -> Array:
        """What the server answers.

        Raises:
            WrongAnswer: It answers with an error.
            requests.RequestException: It does not answer.
        """
        body = self.request(rows)
        answer = requests.post(
            self.url, data=body.content, headers=dict(body.headers), timeout=timeout_s
        )
        if not answer.ok:
            raise WrongAnswer(f"{self.url} answered {answer.status_code}: {answer.text[:SHOWN]}")
        return self.form.decode(answer.content, answer.headers)


def _json(value: Any) -> Body:
    return Body(content=json.dumps(value).encode(), headers={"Content-Type": "application/json"})


def _scoring_body(rows: Array) -> Body:
    return _json({"inputs": rows.tolist()})


def _scoring_rows(content: bytes, headers: Mapping[str, str]) -> Array:
    answer = json.loads(content)
    return np.asarray(answer["predictions"] if isinstance(answer, dict) else answer)


def _tensor(rows: Array, **more: Any) -> dict[str, Any]:
    datatype = DATATYPES[str(rows.dtype)]
    return {"name": INPUT, "shape": list(rows.shape), "datatype": datatype, **more}


def _tensors_body(rows: Array) -> Body:
    return _json({"inputs": [_tensor(rows, data=rows.ravel().tolist())]})


def _tensors_rows(content: bytes, headers: Mapping[str, str]) -> Array:
    tensor = json.loads(content)["outputs"][0]
    return np.asarray(tensor["data"]).reshape(tensor["shape"])


def _binary_body(rows: Array) -> Body:
    head = json.dumps(
        {
            "inputs": [_tensor(rows, parameters={"binary_data_size": rows.nbytes})],
            "outputs": [{"name": OUTPUT, "parameters": {"binary_data": True}}],
        }
    ).encode()
    return Body(
        content=head + rows.tobytes(),
        headers={"Content-Type": "application/octet-stream", LENGTH: str(len(head))},
    )


def _binary_rows(content: bytes, headers: Mapping[str, str]) -> Array:
    length = int(headers[LENGTH])
    shape = json.loads(content[:length])["outputs"][0]["shape"]
    return np.frombuffer(content[length:], np.float32).reshape(shape)


SCORING = Form(encode=_scoring_body, decode=_scoring_rows)
"""MLflow's scoring JSON, `{"inputs": ...}`; the answer may leave out `predictions`."""
TENSORS = Form(encode=_tensors_body, decode=_tensors_rows)
"""The Open Inference Protocol with tensors in JSON."""
BINARY = Form(encode=_binary_body, decode=_binary_rows)
"""The Open Inference Protocol with binary tensors."""
