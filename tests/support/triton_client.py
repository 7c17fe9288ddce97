"""The unmodified `tritonclient.http` in a process and an environment of its own."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.support.client import TRITON, client_python

DRIVER = """
import json
import sys
import traceback

import numpy as np
import tritonclient.http as http
from tritonclient.utils import InferenceServerException


def tensor(name, array, datatype, binary_data=True):
    array = np.asarray(array)
    given = http.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary_data)
    return given


def plain(value):
    if isinstance(value, bytes):
        return value.decode()
    return value.tolist()


def arrays(answer):
    names = [output["name"] for output in answer.get_response()["outputs"]]
    found = {name: answer.as_numpy(name) for name in names}
    return {
        name: [str(array.dtype), json.loads(json.dumps(array.tolist(), default=plain))]
        for name, array in found.items()
    }


for line in sys.stdin:
    asked = json.loads(line)
    client = http.InferenceServerClient(asked["url"])
    headers = {"Authorization": "Bearer " + asked["token"]}
    names = globals() | {"client": client, "headers": headers, **asked["values"]}
    try:
        exec(asked["code"], names)
        answer = {"result": names.get("result")}
    except InferenceServerException as exc:
        answer = {"error": exc.message(), "status": exc.status()}
    except Exception:
        answer = {"traceback": traceback.format_exc()}
    client.close()
    print(json.dumps(answer, default=plain), flush=True)
"""


class Refused(Exception):
    """The client raised `InferenceServerException`."""

    def __init__(self, message: str, status: str | None) -> None:
        super().__init__(message)
        self.status = status


class TritonClient:
    """Runs a user's lines of code; `client`, `headers`, `http` and `np` are there for them.

    So are `tensor(name, array, datatype, binary_data)` for an `InferInput` and `arrays(answer)`
    for what an `InferResult` holds, as `{name: [dtype, values]}`.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(client_python(TRITON)), "-W", "ignore", "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, address: str, token: str, code: str, **values: Any) -> Any:
        """What the code leaves in `result`.

        Args:
            address: `host:port/serving-endpoints/NAME`.
            token: For the header.
            code: Python.
            **values: Further names for the code.

        Raises:
            Refused: The client raised its own exception.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"url": address, "token": token, "code": code, "values": values}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"], answer["status"])
        assert "traceback" not in answer, answer["traceback"]
        return answer["result"]

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()
