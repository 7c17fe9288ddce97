"""Models for the Open Inference Protocol's tests, and endpoints that serve them."""

from __future__ import annotations

from typing import Any

import requests

from serving.spec import RouteEntity
from tests.support.gateway import TOKEN, GatewayServer, Publisher, entity, wait_until_answered
from tests.support.launcher import Launcher
from tests.support.triton_client import TritonClient

SCALED = """
import mlflow
import numpy as np


class Scaled(mlflow.pyfunc.PythonModel):
    # Two named tensors in, two named tensors out; a negative first number is refused.

    def predict(self, context, model_input, params=None):
        x, k = model_input["x"], model_input["k"]
        if (x[:, 0] < 0).any():
            raise ValueError("the first number must not be negative")
        factor = (params or {}).get("factor", 1)
        return {"scaled": x * k[:, None].astype("float32") * factor, "k": k + 1}


mlflow.models.set_model(Scaled())
"""

TABLE = """
import mlflow


class Table(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        out = model_input.copy()
        out["twice"] = out["amount"] * 2
        out["long"] = out["name"].str.len() > 3
        return out


mlflow.models.set_model(Table())
"""

ANYTHING = """
import mlflow


class Anything(mlflow.pyfunc.PythonModel):
    # Without a signature: says what it got, one word a row.

    def predict(self, context, model_input, params=None):
        kind = type(model_input).__name__
        if kind == "DataFrame":
            return [f"{kind} {row}" for row in model_input.to_dict("records")]
        return [f"{kind} {row}" for row in model_input]


mlflow.models.set_model(Anything())
"""


class Asker:
    """Runs a user's code against endpoints that serve the launcher's models."""

    def __init__(
        self, gateway: GatewayServer, publisher: Publisher, launcher: Launcher, triton: TritonClient
    ) -> None:
        self.gateway, self.publisher = gateway, publisher
        self.launcher, self.triton = launcher, triton
        self.endpoint = ""
        self.count = 0

    def publish(self, *entities: RouteEntity, **route: Any) -> str:
        """A new endpoint's address for the client."""
        self.count += 1
        self.endpoint = f"shoal-{self.count}"
        self.publisher.route(*entities, endpoint=self.endpoint, **route)
        wait_until_answered(self.gateway, 400, body=b"no JSON", endpoint=self.endpoint)
        return f"127.0.0.1:{self.gateway.port}/serving-endpoints/{self.endpoint}"

    def __call__(
        self,
        replica_id: str,
        address: str,
        code: str,
        *,
        token: str = TOKEN,
        changes: Any = None,
        route: Any = None,
        **values: Any,
    ) -> Any:
        """What the code leaves in `result`."""
        signature = self.launcher.models[replica_id].signature
        changes = {"signature": signature, "name": replica_id} | (changes or {})
        served = self.publish(entity(address, **changes), **(route or {}))
        return self.triton.run(served, token, code, **({"binary": True} | values))

    def post(
        self,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        gateway: GatewayServer | None = None,
        path: str = "/models/model/infer",
    ) -> requests.Response:
        """One inference request by hand, to the newest endpoint."""
        return requests.post(
            f"{(gateway or self.gateway).url}/serving-endpoints/{self.endpoint}/v2{path}",
            data=body,
            headers={"Authorization": f"Bearer {TOKEN}", **(headers or {})},
            timeout=30,
        )
