"""A model registered with `metadata.entrypoint`, from the client's `log_model` to an answer."""

from __future__ import annotations

import pytest

from tests.support.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

MODEL = "main.default.own_server"
COMMAND = """python -u -c '
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-shouted")
        self.end_headers()
        self.wfile.write(body.upper())

http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
' 0.0.0.0 $PORT"""


def test_a_registered_entrypoint_answers_in_its_own_words(stack: Stack) -> None:
    version = stack.register(MODEL, f"entrypoint={COMMAND}")
    stack.create("own-server", version, MODEL, workload_type="CPU", throughput_optimized=False)
    body = stack.wait_until_settled("own-server")
    assert body["state"] == body["state"] | {"ready": "READY", "config_update": "NOT_UPDATING"}

    answer = stack.api("POST", "/serving-endpoints/own-server/invocations", data="shoal")

    assert (answer.status_code, answer.text) == (200, "SHOAL")
    assert answer.headers["content-type"] == "application/x-shouted"
    triton = body["config"]["served_entities"][0]["triton"]
    assert (triton["status"], triton["reason_code"]) == ("OFF", "CUSTOM_ENTRYPOINT")
    logs = stack.api(
        "GET", "/api/2.0/serving-endpoints/own-server/served-models/current/logs"
    ).json()["logs"]
    assert "The model's own server" in logs
