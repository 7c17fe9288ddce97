"""Speak to the registry as the clients do, in the test's own process."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from portal.accounts.models import User
from portal.accounts.services import create_token

CATALOG = "/api/2.0/mlflow/unity-catalog"
NAME = "main.default.detector"


class Api:
    """Speaks for one user, as the clients do: GET with a query, all else with a JSON body."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.client = Client(headers={"Authorization": f"Bearer {create_token(user)[1]}"})

    def __call__(self, method: str, path: str, **arguments: Any) -> tuple[int, dict[str, Any]]:
        if method == "GET":
            response = self.client.get(f"{CATALOG}/{path}", arguments)
        else:
            response = self.client.generic(
                method, f"{CATALOG}/{path}", json.dumps(arguments), "application/json"
            )
        return response.status_code, response.json()

    def ok(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        status, body = self(method, path, **arguments)
        assert status == 200, body
        return body

    def refusal(self, method: str, path: str, **arguments: Any) -> tuple[int, str]:
        status, body = self(method, path, **arguments)
        assert body["message"]
        return status, body["error_code"]
