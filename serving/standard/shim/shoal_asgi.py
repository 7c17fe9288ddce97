"""MLflow 3's scoring server (ASGI), secrets masked in its error answers."""

from __future__ import annotations

from shoal_masking import mask_json, masker_of_environment

_mask = masker_of_environment()  # before the model is loaded, which may take them out

from mlflow.pyfunc.scoring_server.app import app as scoring_server  # noqa: E402 - see above


class MaskedErrors:
    """Passes everything on but the bodies of errors, which leave masked."""

    def __init__(self, app, mask):
        self.app = app
        self.mask = mask

    async def __call__(self, scope, receive, send):
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, pieces = None, []

        async def send_masked(message):
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] >= 400:
                start = message
            elif start is None:
                await send(message)
            else:
                pieces.append(message.get("body", b""))
                if not message.get("more_body", False):
                    body = mask_json(b"".join(pieces), self.mask)
                    await send({**start, "headers": _headers(start, len(body))})
                    await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, send_masked)


def _headers(start, size):
    others = [pair for pair in start.get("headers", ()) if pair[0].lower() != b"content-length"]
    return [*others, (b"content-length", str(size).encode())]


app = MaskedErrors(scoring_server, _mask)
