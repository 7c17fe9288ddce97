"""What the files of a model version say about it: MLmodel and its neighbours, read with care."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from portal.rest import MAX_JSON_DEPTH, InvalidParameterValue

MAX_MLMODEL_BYTES = 8 * 2**20
MAX_REQUIREMENTS_BYTES = 2**20
MAX_MLMODEL_EVENTS = (
    200_000  # of the YAML parser: what it holds in memory is hundreds of times that
)
MAX_EXAMPLE_FILE_BYTES = 16 * 2**20  # no longer one could be sent to an endpoint
MAX_EXAMPLE_BYTES = 2 * 2**20  # kept; a longer one loses rows from its end
INPUT_KEYS = ("inputs", "instances", "dataframe_split", "dataframe_records")
TARS = ("_databricks/model_version.tar", "_databricks/model_environment.tar")
TEXTS_AND_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The facts that a version's row keeps; the names are those of its fields."""

    size_bytes: int
    mlflow_version: str
    python_version: str
    databricks_runtime: str
    entrypoint: str
    requirements: str
    logged_model_id: str
    signature: dict[str, str | None] | None
    input_example: dict[str, Any] | None
    is_packed: bool


def read_contents(folder: Path) -> Contents:
    """Read the files of a version.

    Raises:
        InvalidParameterValue: There is no MLmodel, or it cannot be read.
    """
    mlmodel = _mlmodel(folder)
    flavors = _mapping(mlmodel.get("flavors"))
    if not flavors:
        raise InvalidParameterValue("MLmodel names no flavor, so nothing can load the model.")
    return Contents(
        size_bytes=_size(folder),
        mlflow_version=_text(mlmodel.get("mlflow_version"), 32),
        python_version=_text(_mapping(flavors.get("python_function")).get("python_version"), 32),
        databricks_runtime=_text(mlmodel.get("databricks_runtime"), 64),
        entrypoint=_text(_mapping(mlmodel.get("metadata")).get("entrypoint"), 10_000),
        requirements=_small_text(folder / "requirements.txt", MAX_REQUIREMENTS_BYTES),
        logged_model_id=_text(mlmodel.get("model_id"), 255),
        signature=_signature(mlmodel.get("signature")),
        input_example=read_example(folder),
        is_packed=all(_has_content(folder / name) for name in TARS),
    )


def _mlmodel(folder: Path) -> Mapping[str, Any]:
    file = folder / "MLmodel"
    try:
        if file.stat().st_size > MAX_MLMODEL_BYTES:
            raise InvalidParameterValue(
                f"MLmodel is larger than {MAX_MLMODEL_BYTES // 2**20} MiB. Log the model again."
            )
        _refuse_many_events(file)
        content = yaml.load(file.read_bytes(), LOADER)  # noqa: S506 - a safe loader, the C one
    except FileNotFoundError:
        raise InvalidParameterValue(
            "The files of this version hold no MLmodel at their root. Upload an MLflow model; "
            "register_model does."
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        raise InvalidParameterValue(f"MLmodel is not YAML that can be read: {exc}"[:500]) from exc
    if not isinstance(content, dict):
        raise InvalidParameterValue("MLmodel is not a YAML mapping. Log the model again.")
    return content


def _refuse_many_events(file: Path) -> None:
    """Refuse YAML that is small on the disk and large in memory."""
    with file.open("rb") as text:
        for count, _ in enumerate(yaml.parse(text, LOADER)):
            if count > MAX_MLMODEL_EVENTS:
                raise InvalidParameterValue(
                    f"MLmodel has more than {MAX_MLMODEL_EVENTS} pieces. Log the model again."
                )


def _signature(value: Any) -> dict[str, str | None] | None:
    """Inputs, outputs and params as MLflow writes them: JSON texts."""
    found = _mapping(value)
    signature = {
        key: text
        for key in ("inputs", "outputs", "params")
        if isinstance(text := found.get(key), str) and _is_json(text)
    }
    if not signature:
        return None
    return {"inputs": None, "outputs": None, "params": None} | signature


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return "\x00" not in text


# ---------------------------------------------------------------- the input example


def read_example(folder: Path) -> dict[str, Any] | None:
    """The input example as the body of a serving request, of bounded size; None without one."""
    for name in ("serving_input_example.json", "input_example.json"):
        body = _as_request(_json(folder / name))
        if body is not None:
            bounded = _bounded(body)
            return bounded if _is_plain(bounded) else None
    return None


def _json(file: Path) -> Any:
    try:
        if file.stat().st_size > MAX_EXAMPLE_FILE_BYTES:
            return None
        text = file.read_text()
        if "\\u0000" in text or _depth(text) > MAX_JSON_DEPTH:
            return None
        return json.loads(text, parse_constant=lambda _: None, parse_float=_finite)
    except (OSError, ValueError, RecursionError):
        return None


def _depth(text: str) -> int:
    """How deeply JSON is nested; it ends where that is more than what is allowed."""
    depth = deepest = 0
    for found in TEXTS_AND_BRACKETS.finditer(text):
        first = found[0][0]
        depth += 1 if first in "[{" else -1 if first in "]}" else 0
        deepest = max(deepest, depth)
        if deepest > MAX_JSON_DEPTH:
            break
    return deepest


def _finite(text: str) -> float | None:
    """1e999 is a number that neither JSON nor a database can hold."""
    value = float(text)
    return value if math.isfinite(value) else None


def _is_plain(value: Any) -> bool:
    """Whether a database takes it: no half of a surrogate pair in its texts."""
    if isinstance(value, str):
        return not any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, dict):
        return all(_is_plain(k) and _is_plain(v) for k, v in value.items())
    return not isinstance(value, list) or all(_is_plain(item) for item in value)


def _as_request(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, dict):
        if any(key in value for key in INPUT_KEYS):
            return {key: item for key, item in value.items() if key in (*INPUT_KEYS, "params")}
        if set(value) >= {"columns", "data"}:
            return {"dataframe_split": value}
    return {"inputs": value}


def _bounded(body: dict[str, Any]) -> dict[str, Any] | None:
    """The body with as many of its first rows as fit; None where not even one does."""
    size = len(json.dumps(body))
    if size <= MAX_EXAMPLE_BYTES:
        return body
    key = next(key for key in INPUT_KEYS if key in body)
    rows = body[key]
    if key == "dataframe_split" and isinstance(rows, dict) and isinstance(rows.get("data"), list):
        keep = _rows_that_fit(len(rows["data"]), size)
        shorter: Any = {"columns": rows.get("columns"), "data": rows["data"][:keep]}
    elif isinstance(rows, list):
        keep = _rows_that_fit(len(rows), size)
        shorter = rows[:keep]
    else:
        return None
    shortened = body | {key: shorter}
    return shortened if keep and len(json.dumps(shortened)) <= 2 * MAX_EXAMPLE_BYTES else None


def _rows_that_fit(rows: int, size: int) -> int:
    return max(1, rows * MAX_EXAMPLE_BYTES // size) if rows else 0


# ---------------------------------------------------------------- small things


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any, limit: int) -> str:
    return str(value).replace("\x00", "")[:limit] if isinstance(value, str | int | float) else ""


def _small_text(file: Path, limit: int) -> str:
    try:
        with file.open("rb") as content:
            return content.read(limit).decode(errors="replace").replace("\x00", "")
    except OSError:
        return ""


def _has_content(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def _size(folder: Path) -> int:
    return sum(
        Path(directory, name).lstat().st_size
        for directory, _, names in os.walk(folder)
        for name in names
    )
