"""One model behind MLflow's scoring code and behind ours, in this process.

MLflow's side is `mlflow.pyfunc.scoring_server.invocations`, what its server runs for a request.
Ours is the gateway's codec, the wire's bytes and the shim's reader and runner; all but Triton.
"""

from __future__ import annotations

import copy
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.pyfunc import PyFuncModel, scoring_server
from mlflow.types import ParamSchema, Schema

from serving.errors import ServingError
from serving.protocol.body import format_of
from tests.support.shim import LocalModel

logging.getLogger("mlflow").setLevel(logging.ERROR)  # it tells of each ignored parameter
FLAVORS = {"python_function": {"loader_module": "mlflow.pyfunc.model"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a caller gets; `predictions` of an answer, or code and message of an error."""

    status: int
    code: str = ""
    message: str = ""
    predictions: Any = None


@dataclass(slots=True)
class Recorder:
    """A model that remembers what it was given.

    Attributes:
        result: What it returns for its input and parameters; a number for each row by default.
    """

    result: Callable[[Any, Any], Any] | None = None
    seen: list[tuple[Any, Any]] = field(default_factory=list)

    def predict(self, data: Any, params: Any = None) -> Any:
        """MLflow calls this with what it parsed and enforced."""
        self.seen[:] = [(copy.deepcopy(data), params)]
        return list(range(rows_in(data))) if self.result is None else self.result(data, params)


def rows_in(data: Any) -> int:
    """Rows of a model's input as a batch has them."""
    if isinstance(data, dict):
        data = next(iter(data.values()))
    return len(data) if np.ndim(data) or isinstance(data, pd.DataFrame) else 1


class BothSides:
    """A model with a signature, asked through MLflow's code and through ours."""

    def __init__(
        self,
        inputs: Schema | None,
        params: ParamSchema | None = None,
        result: Callable[[Any, Any], Any] | None = None,
        max_batch_size: int = 1000,
    ) -> None:
        self.recorder = Recorder(result)
        self.signature = ModelSignature(inputs=inputs, params=params) if inputs or params else None
        self.model = PyFuncModel(Model(flavors=FLAVORS, signature=self.signature), self.recorder)
        described = None if self.signature is None else dict(self.signature.to_dict())
        self.local = LocalModel(self.model, described, max_batch_size)

    def ask_mlflow(self, raw: bytes, content_type: str = "application/json") -> Answer:
        """What MLflow's scoring server answers."""
        return ask_mlflow(self.model, raw, content_type)

    def ask_shoal(self, raw: bytes, content_type: str = "application/json") -> Answer:
        """What the gateway and a replica answer."""
        shim = self.local.shim
        try:
            with quiet():
                return Answer(status=200, predictions=self.local.ask(raw, format_of(content_type)))
        except ServingError as exc:
            return Answer(status=exc.status, code=exc.code, message=exc.message)
        except Exception as exc:  # noqa: BLE001 - the shim sends these on
            return Answer(status=400, code=shim.code_of(exc), message=shim.message_of(exc))

    def last_seen(self) -> tuple[Any, Any] | None:
        """What the model was given last, and parameters; None where it was not called."""
        seen = self.recorder.seen
        return seen.pop() if seen else None


def ask_mlflow(model: Any, raw: bytes, content_type: str = "application/json") -> Answer:
    """What MLflow's scoring server answers with a loaded model."""
    schema = model.metadata.get_input_schema()
    try:
        with quiet():
            reply = scoring_server.invocations(raw, content_type, model, schema)
    except MlflowException as exc:
        return Answer(status=exc.get_http_status_code(), code=exc.error_code, message=exc.message)
    except Exception as exc:  # noqa: BLE001 - the server's 500
        return Answer(status=500, message=repr(exc))
    if reply.status != 200:
        return Answer(status=reply.status, message=reply.response)
    body = json.loads(reply.response)
    if not isinstance(body, dict) or "predictions" not in body:  # taken for a chat
        return Answer(status=500, message=reply.response)
    return Answer(status=200, predictions=body["predictions"])


def plain_words(message: str, *, shows_data: bool = True) -> str:
    """A message without what may differ: the order of sets, and the exception after MLflow's words.

    Args:
        message: Of either side.
        shows_data: Without it, the data that a refusal of parameters names is left out: where
            columns travel as such it is the frame that the model got, not the dictionary that
            MLflow would have made on the way to it.
    """
    text = re.sub(r"Invalid parameters found: .*", "Parameters", message, flags=re.S)
    text = re.sub(r"(input fields |properties: |schema found: )\{.*?\}", r"\1", text)
    text = re.sub(r"(?<=the model for inference\.).*", "", text, flags=re.S)
    if not shows_data:
        text = re.sub(r"Failed to predict data '.*(?=Error: Param)", "", text, flags=re.S)
    return text


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of NumPy and pandas: in production they are lines of a log."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


# ---------------------------------------------------------------- comparisons


def difference(ours: Any, theirs: Any) -> str:
    """What distinguishes two inputs of a model, "" where nothing does."""
    if type(ours) is not type(theirs):
        return f"{type(ours)} against {type(theirs)}"
    if isinstance(theirs, dict):
        if list(ours) != list(theirs):
            return f"names {list(ours)} against {list(theirs)}"
        return next(filter(None, (difference(ours[k], theirs[k]) for k in theirs)), "")
    if isinstance(theirs, np.ndarray):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return f"{ours.dtype}{ours.shape} against {theirs.dtype}{theirs.shape}"
        return _difference_of_lists(ours.tolist(), theirs.tolist())
    if isinstance(theirs, pd.DataFrame):
        return _difference_of_frames(ours, theirs)
    return _difference_of_lists(ours, theirs)


def _difference_of_frames(ours: pd.DataFrame, theirs: pd.DataFrame) -> str:
    if not _equal(list(ours.columns), list(theirs.columns)):
        return f"columns {list(ours.columns)} against {list(theirs.columns)}"
    if [*map(str, ours.dtypes)] != [*map(str, theirs.dtypes)]:
        return f"types {[*map(str, ours.dtypes)]} against {[*map(str, theirs.dtypes)]}"
    if not _equal(list(ours.index), list(theirs.index)):
        return f"index {list(ours.index)} against {list(theirs.index)}"
    for position in range(theirs.shape[1]):  # names may be lists
        found = _difference_of_lists(*(x.iloc[:, position].tolist() for x in (ours, theirs)))
        if found:
            return f"column {position}: {found}"
    return ""


def _difference_of_lists(ours: Any, theirs: Any) -> str:
    return "" if _equal(ours, theirs) else f"{ours!r} against {theirs!r}"


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(_equal, ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_equal(ours[k], theirs[k]) for k in theirs)
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        return difference(ours, theirs) == ""
    if pd.api.types.is_scalar(ours) and pd.isna(ours):
        return bool(pd.api.types.is_scalar(theirs) and pd.isna(theirs)) and (ours is None) == (
            theirs is None
        )
    return bool(ours == theirs) and isinstance(ours, str) == isinstance(theirs, str)


def same_json(ours: Any, theirs: Any) -> bool:
    """Whether two parsed answers say the same: types, order of names, NaN.

    Floats of 32 and 16 bits are written with other digits than MLflow's: equal when read as such.
    """
    if isinstance(theirs, float) and isinstance(ours, float):
        if ours == theirs or (ours != ours and theirs != theirs):
            return True
        with np.errstate(over="ignore"):
            narrow = [kind for kind in (np.float16, np.float32) if float(kind(theirs)) == theirs]
            return any(kind(ours) == kind(theirs) for kind in narrow)
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same_json(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same_json, ours, theirs))
    return bool(ours == theirs and type(ours) is type(theirs))
