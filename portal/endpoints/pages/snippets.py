"""How to ask an endpoint from a program: real URL, real input, the token from the environment."""

from __future__ import annotations

import json
import pprint
import shlex
from dataclasses import dataclass

from portal.endpoints.models import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    key: str
    label: str
    code: str


def for_endpoint(endpoint: Endpoint, base_url: str, body: str) -> list[Snippet]:
    """Snippets that send `body`; each runs as it stands once the two variables are set."""
    try:
        value = json.loads(body) if body else {"inputs": []}
    except ValueError:
        value = {"inputs": []}
    path = f"/serving-endpoints/{endpoint.name}/invocations"
    one_line = json.dumps(value, ensure_ascii=False)
    python = pprint.pformat(value, width=88, sort_dicts=False, compact=True)
    environment = (
        f"# export DATABRICKS_HOST={base_url}\n# export DATABRICKS_TOKEN=...   (Access tokens)\n"
    )
    return [
        Snippet(
            key="curl",
            label="curl",
            code=(
                f"curl {shlex.quote(base_url + path)} \\\n"
                '  -H "Authorization: Bearer $DATABRICKS_TOKEN" \\\n'
                '  -H "Content-Type: application/json" \\\n'
                f"  -d {shlex.quote(one_line)}"
            ),
        ),
        Snippet(
            key="requests",
            label="Python",
            code=(
                "import os\n\nimport requests\n\n"
                f"body = {python}\n"
                "response = requests.post(\n"
                f'    "{base_url}{path}",\n'
                '    headers={"Authorization": f"Bearer {os.environ[\'DATABRICKS_TOKEN\']}"},\n'
                "    json=body,\n"
                "    timeout=60,\n"
                ")\n"
                "response.raise_for_status()\n"
                'print(response.json()["predictions"])'
            ),
        ),
        Snippet(
            key="mlflow",
            label="MLflow",
            code=(
                f"{environment}from mlflow.deployments import get_deploy_client\n\n"
                f"body = {python}\n"
                'client = get_deploy_client("databricks")\n'
                f'answer = client.predict(endpoint="{endpoint.name}", inputs=body)\n'
                'print(answer["predictions"])'
            ),
        ),
        Snippet(
            key="sdk",
            label="databricks-sdk",
            code=(
                f"{environment}from databricks.sdk import WorkspaceClient\n\n"
                f"body = {python}\n"
                "w = WorkspaceClient()\n"
                f'answer = w.serving_endpoints.query(name="{endpoint.name}", **body)\n'
                "print(answer.predictions)"
            ),
        ),
    ]
