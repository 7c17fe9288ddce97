"""The smoke test of a deployment: one request straight to a replica, before any caller's."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.errors import ModelRaised, NotBatchable, ReplicaUnavailable
from serving.gateway.replies import output_of, predictions_of
from serving.gateway.transport import Reply
from serving.protocol.codec import EntityCodec
from serving.protocol.wire import write_invocation
from serving.spec import Backend

SMALLEST_BATCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeResult:
    """What a replica made of one request.

    Attributes:
        rows_in: Rows that the request brought.
        rows_out: Rows of the answer; 1 for an answer without rows.
        elapsed_ms: From the first byte sent to the last one received.
    """

    rows_in: int
    rows_out: int
    elapsed_ms: float


def smoke_test(
    *,
    address: str,
    backend: Backend,
    signature: Mapping[str, Any] | None,
    body: Mapping[str, Any],
    timeout_s: float,
    max_batch_size: int | None = None,
) -> SmokeResult:
    """Send a serving request to a replica and read its answer.

    Args:
        address: `host:port`.
        backend: What runs there.
        signature: MLflow's `ModelSignature.to_dict()`, None without a signature.
        body: A serving request, such as `{"inputs": [[1, 2]]}`.
        timeout_s: For the whole.
        max_batch_size: Most rows that Triton takes at once; None: the request's own.

    Raises:
        InvalidInput: The body does not fit the signature.
        ModelRaised: The model failed on it.
        NotBatchable: The model returned another number of rows than it was given.
        ReplicaUnavailable: The replica did not answer in time.
    """
    raw = json.dumps(body).encode()
    if backend is Backend.STANDARD:
        return _probe_standard(address, raw, timeout_s)
    if backend is Backend.ENTRYPOINT:
        return _probe_entrypoint(address, raw, timeout_s)
    rows = _count_rows(signature, raw)
    largest = max_batch_size or max(rows, SMALLEST_BATCH)
    codec = EntityCodec(signature, max_batch_size=largest)
    decoded = codec.decode(raw)
    started = time.monotonic()
    outputs = [
        output_of(_ask(address, codec.write([part], decoded.params), timeout_s))
        for part in decoded.parts
    ]
    elapsed_ms = (time.monotonic() - started) * 1000
    found = codec.answer(outputs).rows
    is_joinable = codec.plan.is_joinable and not decoded.is_alone
    if found is not None and is_joinable and found != decoded.rows:
        raise NotBatchable(
            f"The model returned {found} outputs for {decoded.rows} inputs; it cannot be batched."
        )
    return SmokeResult(
        rows_in=decoded.rows, rows_out=1 if found is None else found, elapsed_ms=elapsed_ms
    )


def _probe_standard(address: str, raw: bytes, timeout_s: float) -> SmokeResult:
    started = time.monotonic()
    reply = _ask(address, write_invocation(raw), timeout_s)
    elapsed_ms = (time.monotonic() - started) * 1000
    predictions = json.loads(predictions_of(reply))["predictions"]
    rows_out = len(predictions) if isinstance(predictions, list) else 1
    return SmokeResult(rows_in=_count_rows(None, raw), rows_out=rows_out, elapsed_ms=elapsed_ms)


def _probe_entrypoint(address: str, raw: bytes, timeout_s: float) -> SmokeResult:
    """What it says is its own affair; an input example may not be what it takes."""
    started = time.monotonic()
    reply = _ask(address, write_invocation(raw), timeout_s)
    elapsed_ms = (time.monotonic() - started) * 1000
    if reply.status >= 400:
        words = reply.body[:500].decode(errors="replace")
        raise ModelRaised(f"its server answered {reply.status}: {words}")
    return SmokeResult(rows_in=1, rows_out=1, elapsed_ms=elapsed_ms)


def _count_rows(signature: Mapping[str, Any] | None, raw: bytes) -> int:
    return EntityCodec(signature, max_batch_size=10**6).decode(raw).rows


def _ask(address: str, pieces: Sequence[bytes], timeout_s: float) -> Reply:
    """Send a whole HTTP request as it was written for the gateway's own connections."""
    request = b"".join(pieces)
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=timeout_s)
    try:
        connection.connect()
        connection.send(request)
        response = http.client.HTTPResponse(connection.sock, method="POST")
        response.begin()
        body = response.read()
    except (OSError, http.client.HTTPException) as exc:
        raise ReplicaUnavailable("The replica did not answer the smoke test in time.") from exc
    finally:
        connection.close()
    head = "".join(f"\r\n{name}: {value}" for name, value in response.getheaders()) + "\r\n"
    return Reply(response.status, head.lower().encode(), body)
