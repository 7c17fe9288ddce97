"""A model that brings its own server: a few lines of the standard library's HTTP server."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.support.model_environment import save_model
from tests.support.replicas import SavedModel

SERVER = """
import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int)
parser.add_argument("--no-health", action="store_true")
options = parser.parse_args()


class Handler(BaseHTTPRequestHandler):
    # HTTP/1.0: an answer ends with its connection.

    def do_GET(self):
        is_health = self.path == "/health" and not options.no_health
        self.answer(200 if is_health else 404, b"")

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.headers["Content-Type"]
        if kind != "application/json":
            return self.answer(200, kind.encode() + b" " + raw, "text/x-echo")
        asked = json.loads(raw or b"{}")
        if asked.get("say") == "where":
            words = [os.getcwd(), sys.prefix, os.environ.get("GREETING", "-")]
            return self.answer(200, " ".join(words).encode())
        if "headers" in asked:
            return self.answer(200, json.dumps(sorted(map(str.lower, self.headers))).encode())
        if "sleep" in asked:
            time.sleep(asked["sleep"])
            return self.answer(200, b"slept")
        if "die" in asked and not os.path.exists(asked["die"]):
            open(asked["die"], "w").close()
            os._exit(1)
        if asked.get("stream"):
            return self.stream(asked["stream"], asked.get("break"))
        if "status" in asked:
            problem = b'{"detail": "as you like"}'
            return self.answer(asked["status"], problem, "application/problem+json")
        self.answer(200, json.dumps(asked).encode(), "application/json")

    def stream(self, count, broken):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(count):
            event = b"data: %d\\n\\n" % number
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(event), event))
            self.wfile.flush()
            time.sleep(0.3)
        if not broken:
            self.wfile.write(b"0\\r\\n\\r\\n")

    def answer(self, status, body, kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


print("listening on", options.port, flush=True)
ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()
"""

PLACEHOLDER = """
import mlflow


class Placeholder(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        raise NotImplementedError


mlflow.models.set_model(Placeholder())
"""


def save_own_server(directory: Path) -> SavedModel:
    """Save a model whose artifacts hold `server.py`; `MLmodel` names it as the entrypoint."""
    signature = save_model(
        directory, PLACEHOLDER, metadata={"entrypoint": "python -u server.py --port 8080"}
    )
    artifacts = directory / "artifacts"
    artifacts.mkdir(exist_ok=True)
    (artifacts / "server.py").write_text(SERVER)
    mlmodel = yaml.safe_load((directory / "MLmodel").read_text())
    assert mlmodel["metadata"]["entrypoint"]
    return SavedModel(directory=directory, signature=signature)
