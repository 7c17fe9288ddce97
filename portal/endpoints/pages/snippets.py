"""How to ask an endpoint from a program: real URL, real input, the token from the environment."""

from __future__ import annotations

import json
import pprint
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portal.endpoints.models import Endpoint
from serving.protocol.oip.model import DTYPES, WHOLE_REQUEST, Element, model_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    key: str
    label: str
    code: str


def for_endpoint(
    endpoint: Endpoint, base_url: str, body: str, signature: Mapping[str, Any] | None
) -> list[Snippet]:
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
        Snippet(
            key="binary",
            label="Binary (tritonclient)",
            code=_binary(endpoint.name, base_url, value, signature),
        ),
    ]


def _binary(name: str, base_url: str, body: object, signature: Mapping[str, Any] | None) -> str:
    """The same request by the Open Inference Protocol, which spares both sides the JSON."""
    scheme, _, address = base_url.partition("://")
    is_secure = ", ssl=True" if scheme == "https" else ""
    arrays = "".join(
        f"    {json.dumps(tensor)}: np.array(\n"
        f"{textwrap.indent(pprint.pformat(values, width=80, compact=True), ' ' * 8)},\n"
        f'        dtype="{dtype}",\n'
        "    ),\n"
        for tensor, values, dtype in _tensors(body, signature)
    )
    return (
        '# pip install "tritonclient[http]"\nimport os\n\nimport numpy as np\n'
        "import tritonclient.http as http\n"
        "from tritonclient.utils import np_to_triton_dtype\n\n"
        f"arrays = {{\n{arrays}}}\n"
        "inputs = []\n"
        "for name, array in arrays.items():\n"
        "    datatype = np_to_triton_dtype(array.dtype)\n"
        "    inputs.append(http.InferInput(name, list(array.shape), datatype))\n"
        "    inputs[-1].set_data_from_numpy(array)\n"
        "client = http.InferenceServerClient(\n"
        f'    "{address}/serving-endpoints/{name}"{is_secure}\n)\n'
        'headers = {"Authorization": f"Bearer {os.environ[\'DATABRICKS_TOKEN\']}"}\n'
        'answer = client.infer("model", inputs, headers=headers)\n'
        'for output in answer.get_response()["outputs"]:\n'
        '    print(output["name"], answer.as_numpy(output["name"]).tolist())'
    )


def _tensors(body: object, signature: Mapping[str, Any] | None) -> list[tuple[str, Any, str]]:
    """The body as tensors: name, values and NumPy's word for their elements."""
    wanted = model_inputs(signature)
    found: list[tuple[str, Any, str]] = []
    for tensor in wanted:
        try:
            values = _values(body, tensor.key) if isinstance(body, Mapping) else None
        except (KeyError, IndexError, TypeError, ValueError):  # what a person types can be anything
            values = None
        if values is None or tensor.element not in {Element.NUMBER, Element.TEXT}:
            found = []
            break
        found.append((tensor.name, values, DTYPES.get(tensor.datatype, "object")))
    return found or [(WHOLE_REQUEST.name, [json.dumps(body, ensure_ascii=False)], "object")]


def _values(body: Mapping[str, Any], key: str | None) -> Any:
    """One input's values in a scoring request's body; None where they are not to be found."""
    split = body.get("dataframe_split")
    if isinstance(split, Mapping):
        columns = split.get("columns") or []
        return [row[columns.index(key)] for row in split["data"]] if key in columns else None
    given = next((body[k] for k in ("inputs", "instances", "dataframe_records") if k in body), None)
    if key is None:
        return given if isinstance(given, list) else None
    if isinstance(given, Mapping):
        return given.get(key)
    if isinstance(given, list) and all(isinstance(row, Mapping) and key in row for row in given):
        return [row[key] for row in given]
    return None
