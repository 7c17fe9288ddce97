"""What goes over the wire to a Triton replica and back: HTTP bodies with binary tensors.

The request's head and JSON header depend on shapes and parameters alone, so they are
built once for each combination and kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import orjson

from serving.protocol.plan import OUTPUT_NAME, InputPlan
from serving.protocol.tensors import Array

INFER_PATH = "/v2/models/model/infer"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one request that travel together: at most as many as the model takes at once."""

    rows: int
    arrays: tuple[Array, ...]


class RequestWriter:
    """Writes inference requests for one served entity.

    Args:
        plan: How the model's inputs travel.
    """

    def __init__(self, plan: InputPlan) -> None:
        self._inputs = plan.inputs
        self._head = lru_cache(maxsize=512)(self._build_head)

    def write(self, part: Part, params: str) -> list[bytes]:
        """The whole HTTP request, in pieces to be sent one after the other."""
        shapes = tuple(array.shape for array in part.arrays)
        # Long parameters are not kept: they could fill the memory.
        build = self._head if len(params) <= 1024 else self._build_head
        return [build(shapes, params), *(array.tobytes() for array in part.arrays)]

    def _build_head(self, shapes: tuple[tuple[int, ...], ...], params: str) -> bytes:
        inputs, data_bytes = [], 0
        for planned, shape in zip(self._inputs, shapes, strict=True):
            itemsize = 1 if planned.datatype == "UINT8" else np.dtype(planned.dtype).itemsize
            size = int(np.prod(shape)) * itemsize
            data_bytes += size
            inputs.append(
                {
                    "name": planned.name,
                    "shape": shape,
                    "datatype": planned.datatype,
                    "parameters": {"binary_data_size": size},
                }
            )
        header = orjson.dumps(
            {
                "inputs": inputs,
                "outputs": [{"name": OUTPUT_NAME, "parameters": {"binary_data": True}}],
                "parameters": {"params": params} if params else {},
            }
        )
        return (
            f"POST {INFER_PATH} HTTP/1.1\r\nHost: replica\r\n"
            f"Content-Type: application/octet-stream\r\n"
            f"Inference-Header-Content-Length: {len(header)}\r\n"
            f"Content-Length: {len(header) + data_bytes}\r\n\r\n"
        ).encode() + header


def write_invocation(body: bytes) -> list[bytes]:
    """The HTTP request to MLflow's scoring server."""
    return [
        b"POST /invocations HTTP/1.1\r\nHost: replica\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body),
        body,
    ]


def output_of(head: bytes, body: bytes) -> bytes:
    """The bytes of the output in Triton's answer; `head` in small letters.

    Raises:
        ValueError: The answer has no binary output.
    """
    name = b"\r\ninference-header-content-length:"
    start = head.find(name)
    if start < 0:
        raise ValueError("The replica's answer has no binary output.")
    start += len(name)
    return body[int(head[start : head.find(b"\r\n", start)]) :]


def error_of(body: bytes) -> str:
    """The message of Triton's error answer."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body[:500].decode("utf-8", "replace")
