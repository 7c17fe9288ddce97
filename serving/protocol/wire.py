"""What goes over the wire to a Triton replica and back: HTTP bodies with binary tensors.

The request's head and JSON header depend on shapes and parameters alone, so they are
built once for each combination and kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import orjson

from serving.protocol.body import Format
from serving.protocol.plan import OUTPUT_NAME, InputPlan
from serving.protocol.tensors import Array

INFER_PATH = "/v2/models/model/infer"
TEXT = "str"
SMALL_BYTES = 64 * 1024
"""Below this, copying pieces together is cheaper than handing them to the kernel one by one."""


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

    def write(self, parts: Sequence[Part], params: str) -> list[bytes]:
        """The whole HTTP request for parts that share a `join_key`, in pieces to be sent in order.

        Args:
            parts: At least one; their rows follow each other.
            params: The parameters' JSON text, the same for all.
        """
        arrays = self._joined(parts)
        # Long parameters are not kept: they could fill the memory.
        build = self._head if len(params) <= 1024 else self._build_head
        head = build(tuple(shape for shape, _ in arrays), params)
        pieces = [head, *(data for _, pieces in arrays for data in pieces)]
        if len(pieces) > 2 and sum(map(len, pieces)) < SMALL_BYTES:
            return [b"".join(pieces)]
        return pieces

    def join_key(self, part: Part, params: str) -> tuple[object, ...]:
        """Parts of the same key can travel as one: same parameters, same shape of a row.

        The length of text is no part of it: shorter rows are filled up.
        """
        return (
            params,
            *(
                None if planned.dtype == TEXT else array.shape[1:]
                for planned, array in zip(self._inputs, part.arrays, strict=True)
            ),
        )

    def _joined(self, parts: Sequence[Part]) -> list[tuple[tuple[int, ...], list[bytes]]]:
        """Shape and bytes of each input over all parts."""
        if len(parts) == 1:
            return [(array.shape, [array.tobytes()]) for array in parts[0].arrays]
        rows = sum(part.rows for part in parts)
        found: list[tuple[tuple[int, ...], list[bytes]]] = []
        for position, planned in enumerate(self._inputs):
            arrays = [part.arrays[position] for part in parts]
            if planned.dtype == TEXT:
                arrays = _of_one_width(arrays)
            found.append(((rows, *arrays[0].shape[1:]), [array.tobytes() for array in arrays]))
        return found

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


def _of_one_width(arrays: Sequence[Array]) -> list[Array]:
    """Packed text `[N, W]`, filled up to the widest."""
    width = max(array.shape[1] for array in arrays)
    return [
        array if array.shape[1] == width else np.pad(array, ((0, 0), (0, width - array.shape[1])))
        for array in arrays
    ]


def write_invocation(body: bytes, form: Format = Format.JSON) -> list[bytes]:
    """The HTTP request to MLflow's scoring server."""
    return [
        b"POST /invocations HTTP/1.1\r\nHost: replica\r\nContent-Type: %s\r\n"
        b"Content-Length: %d\r\n\r\n" % (form.encode(), len(body)),
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
