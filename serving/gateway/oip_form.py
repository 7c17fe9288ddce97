"""One Open Inference request and its answer, as the dispatcher sends them to either backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from serving.gateway.http import Header
from serving.protocol.answers import Answer, join_answers, parse_json
from serving.protocol.codec import Decoded, EntityCodec
from serving.protocol.oip.answer import answer_of_predictions, output_tensors, write_reply
from serving.protocol.oip.inputs import decode, scoring_body
from serving.protocol.oip.model import BYTES, model_outputs
from serving.protocol.oip.request import InferRequest
from serving.protocol.plan import InputKind
from serving.spec import RouteEntity

FEW_ELEMENTS = 4096

_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")
_LENGTH = b"inference-header-content-length"


class OpenInferenceForm:
    """Reads the request for the entity that it turns out to be for, and writes its answer.

    Args:
        request: What came.
        model_name: As the caller named it.

    Attributes:
        headers: Of the answer that was written last; binary data is told by its JSON's length.
    """

    def __init__(self, request: InferRequest, model_name: str) -> None:
        self._request = request
        self._model_name = model_name
        # Bytes are taken as they are; lists and texts are looked at one by one.
        self._is_quick = all(
            (tensor.datatype != BYTES and not isinstance(tensor.data, list))
            or tensor.count <= FEW_ELEMENTS
            for tensor in request.inputs
        )
        self.headers: Sequence[Header] = ()

    def decode_quickly(self, codec: EntityCodec, entity: RouteEntity) -> Decoded | None:
        """As `decode`, for bytes or a few elements; None for others."""
        if self._is_quick and codec.plan.kind is not InputKind.JSON:
            return decode(self._request, codec, entity.signature)
        return None

    async def decode(self, codec: EntityCodec, entity: RouteEntity) -> Decoded:
        """The request as it goes to Triton."""
        decoded = self.decode_quickly(codec, entity)
        if decoded is None:
            return await asyncio.to_thread(decode, self._request, codec, entity.signature)
        return decoded

    def encode(self, codec: EntityCodec, answers: Sequence[Answer], entity: RouteEntity) -> bytes:
        """The answer, from those to each part."""
        return self._write(join_answers(answers).parsed(), entity)

    async def invocation(self, entity: RouteEntity) -> bytes:
        """The request as it goes to MLflow's server."""
        return await asyncio.to_thread(scoring_body, self._request, entity.signature)

    def encode_predictions(self, body: bytes, entity: RouteEntity) -> bytes:
        """The answer, from what MLflow's server answered."""
        value = parse_json(body)
        if isinstance(value, dict) and "predictions" in value:
            value = value["predictions"]
        return self._write(answer_of_predictions(value), entity)

    def _write(self, answer: Answer, entity: RouteEntity) -> bytes:
        outputs = output_tensors(answer, model_outputs(entity.signature))
        body, json_bytes = write_reply(
            outputs,
            self._request,
            model_name=self._model_name,
            version=entity.entity_version,
        )
        self.headers = (_JSON,) if json_bytes is None else (_BINARY, (_LENGTH, b"%d" % json_bytes))
        return body
