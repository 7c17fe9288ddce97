"""Requests of any number of rows, made from a model's input example, straight to a replica.

The probe and the profiler need the same rows alone, in pairs and in large batches. Tensors and
columns are repeated as arrays, so that a large batch costs no JSON; the rest as JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from serving.errors import DeadlineExceeded, InvalidInput
from serving.gateway.replies import output_of
from serving.gateway.transport import ReplicaPool
from serving.protocol import body as bodies
from serving.protocol.answers import Answer
from serving.protocol.codec import Decoded, EntityCodec
from serving.protocol.plan import InputKind
from serving.protocol.wire import Part

UNBOUNDED = 10**6


class ExampleRows:
    """The rows of an input example.

    Args:
        signature: MLflow's `ModelSignature.to_dict()`, None without a signature.
        body: A serving request, such as `{"inputs": [[1, 2]]}`.

    Raises:
        InvalidInput: The example does not fit the signature, or has no rows to repeat.
    """

    def __init__(self, signature: Mapping[str, Any] | None, body: Mapping[str, Any]) -> None:
        self.signature = signature
        self._codec = EntityCodec(signature, max_batch_size=UNBOUNDED)
        self._body = dict(body)
        decoded = self._codec.decode(bodies.dump(self._body))
        if not self._codec.plan.is_joinable:
            raise InvalidInput(
                "The signature fixes the number of rows, so requests run one by one."
            )
        if decoded.is_alone and "dataframe_split" in self._body:  # it may have an index
            table = self._body["dataframe_split"]
            self._body["dataframe_split"] = {k: v for k, v in table.items() if k != "index"}
            decoded = self._codec.decode(bodies.dump(self._body))
        if decoded.is_alone:
            raise InvalidInput("The input example has no rows, or inputs of different lengths.")
        self._decoded = decoded
        self._is_json = self._codec.plan.kind is InputKind.JSON
        self.rows = decoded.rows
        if self._is_json and not self._is_tellable():
            raise InvalidInput("The rows of the input example cannot be told apart.")

    def part(self, rows: Sequence[int]) -> Part:
        """These rows of the example as what one request carries; numbers go round."""
        return self._chosen([row % self.rows for row in rows]).parts[0]

    def request(self, rows: Sequence[int]) -> list[bytes]:
        """These rows of the example as one HTTP request to Triton."""
        return self._codec.write([self.part(rows)], self._decoded.params)

    @property
    def is_joined(self) -> bool:
        """Whether the gateway itself joins such requests, and not Triton."""
        return self._codec.can_join(self._decoded.params)

    @property
    def params(self) -> str:
        """The example's parameters as JSON text."""
        return self._decoded.params

    def answer(self, output: bytes) -> Answer:
        """A replica's output."""
        return self._codec.answer([output])

    def _is_tellable(self) -> bool:
        try:
            return self._chosen([0, 0]).rows == 2
        except (InvalidInput, KeyError, IndexError, TypeError):
            return False

    def _chosen(self, rows: Sequence[int]) -> Decoded:
        if self._is_json:
            return self._codec.decode(bodies.dump(_choose_json(self._body, rows)))
        (part,) = self._decoded.parts
        chosen = tuple(np.ascontiguousarray(array[list(rows)]) for array in part.arrays)
        return Decoded((Part(len(rows), chosen),), self._decoded.params)


def _choose_json(body: Mapping[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    def choose(value: Any) -> Any:
        return [value[row] for row in rows]

    chosen = dict(body)
    for field in bodies.INPUT_FIELDS:
        value = body.get(field)
        if field == "dataframe_split" and isinstance(value, Mapping):
            kept = {key: item for key, item in value.items() if key != "index"}
            chosen[field] = {**kept, "data": choose(value["data"])}
        elif isinstance(value, list):
            chosen[field] = choose(value)
        elif isinstance(value, Mapping):
            chosen[field] = {key: choose(item) for key, item in value.items()}
    return chosen


async def ask(pool: ReplicaPool, request: Sequence[bytes], *, timeout_s: float) -> bytes:
    """Send one request to Triton and give the packed output.

    Raises:
        ServingError: As `serving.gateway.replies.output_of` and `ReplicaPool.request` say.
        DeadlineExceeded: There was no answer within `timeout_s`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return output_of(await pool.request(request))
    except TimeoutError as exc:
        raise DeadlineExceeded(f"The model did not answer within {timeout_s:g} s.") from exc
