"""MLflow 2's scoring server (WSGI), secrets masked in its error answers."""

from __future__ import annotations

from shoal_masking import mask_json, masker_of_environment

_mask = masker_of_environment()  # before the model is loaded, which may take them out

from mlflow.pyfunc.scoring_server.wsgi import app as scoring_server  # noqa: E402 - see above


def app(environ, start_response):
    """Answer a request."""
    started = []

    def start(status, headers, exc_info=None):
        started[:] = [status, headers, exc_info]
        return lambda data: None  # nobody has used this since 2003

    pieces = scoring_server(environ, start)
    status, headers, exc_info = started
    if int(status[:3]) >= 400:
        body = mask_json(b"".join(pieces), _mask)
        headers = [pair for pair in headers if pair[0].lower() != "content-length"]
        headers.append(("Content-Length", str(len(body))))
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
        pieces = [body]
    start_response(status, headers, exc_info)
    return pieces
