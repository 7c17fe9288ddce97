"""Runs an MLflow model inside Triton's Python backend, in the model's own environment.

Triton hands over the requests of one dynamic batch; those of the same shape and parameters become
one call of the model, whose answer is cut into each request's own rows. This file is copied into
every model repository, so it imports nothing of Shoal and keeps to Python 3.8.

Triton's stub was built against NumPy 1: under NumPy 2 its own conversions give wrong numbers or
nothing, so tensors go through DLPack there, and text never travels as a string tensor.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import struct
import sys
import time
import traceback

import numpy as np
import triton_python_backend_utils as pb_utils
from shoal_answers import pack_answer, take_apart
from shoal_busy import BusyMark
from shoal_masking import masker_of_environment

NUMPY2 = int(np.__version__.split(".")[0]) >= 2
MAX_MESSAGE_LENGTH = 4000
BISECTIONS_PER_SECOND = 200
KEPT_END = 1500  # of a message that is too long: what is wrong stands at its end
NULL_LENGTH = 0xFFFFFFFF  # the length of a missing text
JSON_FLAG = 0x80000000  # in the length of a value in a text column that is JSON
EXTRAS_MARK = "@"  # before parameters with which something else travels
ALONE_MARK = "!"  # the same, of a request that must be run alone
UNEXPECTED = (
    "Encountered an unexpected error while evaluating the model. Verify that the serialized input"
    " Dataframe is compatible with the model for inference. "
)
BAD_REQUEST = "BAD_REQUEST"
CODES = (BAD_REQUEST, "INVALID_PARAMETER_VALUE")  # which MLflow's server answers with a 400

_set_destructor = ctypes.pythonapi.PyCapsule_SetDestructor
_set_destructor.argtypes = [ctypes.py_object, ctypes.c_void_p]


class RowMismatch(Exception):
    """The model did not return one row for each row it was given."""


# ---------------------------------------------------------------- tensors


def read_tensor(tensor):
    """A Triton tensor as a read-only view; copy before the model gets it."""
    return np.from_dlpack(tensor) if NUMPY2 else tensor.as_numpy()


def write_tensor(name, array):
    """A contiguous, writable, non-empty array as a Triton tensor."""
    if not NUMPY2:
        return pb_utils.Tensor(name, array)
    capsule = array.__dlpack__()
    # The backend renames the capsule to a name that NumPy's destructor does not know; without this
    # each tensor writes a traceback to the log.
    _set_destructor(capsule, None)
    return pb_utils.Tensor.from_dlpack(name, capsule)


def unpack_text(array):
    """`[N, W]` bytes, each row u32 length and UTF-8, as a list of N strings or None.

    A value with a flag in its length is JSON.
    """
    width = array.shape[1]
    data = array.tobytes()
    lengths = np.ascontiguousarray(array[:, :4]).view("<u4").ravel().tolist()
    return [_unpack_cell(data, i * width + 4, length) for i, length in enumerate(lengths)]


def _unpack_cell(data, start, length):
    if length < JSON_FLAG:
        return data[start : start + length].decode("utf-8", "surrogatepass")
    if length == NULL_LENGTH:
        return None
    return json.loads(data[start : start + length - JSON_FLAG].decode("utf-8"))


def unpack_bytes(array):
    """`[N, W]` bytes, together u32 length, a body and padding, as the body."""
    data = array.tobytes()
    (length,) = struct.unpack_from("<I", data)
    return data[4 : 4 + length]


def restore(array, shape):
    """An array that was filled up to travel, as it was; `shape` without the wire's additions."""
    if 0 in shape:
        return np.zeros(shape if len(shape) > 1 else (shape[0], 1), array.dtype)
    return array[: shape[0]]


# ---------------------------------------------------------------- requests


class Item:
    """One request, read: the model's input, its rows, and what it may be joined with.

    `key` is None where the request must be run alone; its answer then need not have its rows.
    """

    __slots__ = ("_data", "_make", "key", "params", "position", "rows")

    def __init__(self, position, params, make, describe):
        self.position = position
        self.params = params
        self._make = make
        self._data = make()
        self.rows, self.key = describe(self._data)

    def take(self):
        """The model's input, new each time: a call that failed may have changed what it got."""
        data, self._data = self._data, None
        return self._make() if data is None else data


def describe(data):
    """`(rows, key)` of a parsed model input; `(None, None)` where it cannot be joined."""
    if isinstance(data, np.ndarray) and data.ndim:
        return len(data), ("ndarray", _dtype_key(data), data.shape[1:])
    if isinstance(data, list):
        return _describe_list(data)
    if isinstance(data, dict) and all(isinstance(v, np.ndarray) and v.ndim for v in data.values()):
        if len({len(v) for v in data.values()}) != 1:
            return None, None
        parts = tuple((k, _dtype_key(v), v.shape[1:]) for k, v in data.items())
        return len(next(iter(data.values()))), ("dict", parts)
    if type(data).__name__ == "DataFrame" and type(data.index).__name__ == "RangeIndex":
        return len(data), ("frame", tuple(data.columns), tuple(str(t) for t in data.dtypes))
    return None, None


def _describe_list(data):
    kinds = {tuple(sorted(row, key=str)) if isinstance(row, dict) else None for row in data}
    if len(kinds) != 1:
        return None, None
    return len(data), ("list", kinds.pop())


def _dtype_key(array):
    return array.dtype.kind if array.dtype.kind in "USO" else array.dtype.str


def join(parts):
    """Inputs of the same key as one, which the model may change."""
    first = parts[0]
    if len(parts) == 1:
        return _writable(first)
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if isinstance(first, list):
        return [row for part in parts for row in part]
    if isinstance(first, dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in first}
    import pandas as pd

    return pd.concat(parts, ignore_index=True)


def cut_rows(data, start, stop):
    """Some rows of a parsed model input that `describe` gave a key."""
    if isinstance(data, dict):
        return {name: value[start:stop] for name, value in data.items()}
    if isinstance(data, (list, np.ndarray)):
        return data[start:stop]
    return data.iloc[start:stop].reset_index(drop=True)


def _writable(data):
    """Triton's memory is read-only, and not the model's to keep: copied, when no join does it."""
    if isinstance(data, dict):
        return {name: _writable(value) for name, value in data.items()}
    return data.copy() if isinstance(data, np.ndarray) and not data.flags.owndata else data


class Reader:
    """Turns one request's tensors into the model's input."""

    def __init__(self, plan, model):
        self.inputs = plan["inputs"]
        self.kind = plan["kind"]
        self.is_joinable = plan["is_joinable"]
        self.metadata = model.metadata
        self.schema = model.metadata.get_input_schema() if self.kind == "json" else None
        self.has_nested_columns = self.schema is not None and not (
            self.schema.is_tensor_spec()
            or all(hasattr(t, "to_pandas") for t in _types(self.schema))
        )

    def read(self, position, arrays, params):
        """One `Item` of the arrays in the plan's order."""
        extras = {}
        is_alone = params.startswith(ALONE_MARK)
        if is_alone or params.startswith(EXTRAS_MARK):
            extras = json.loads(params[1:])
            params = extras["params"]
        if "shapes" in extras:
            arrays = [restore(a, shape) for a, shape in zip(arrays, extras["shapes"])]

        def describe_with_params(data):
            rows, key = (None, None) if is_alone else self._describe(data)
            return (rows, (params, key)) if _is_hashable(key) else (None, None)

        return Item(position, params, lambda: self._make(arrays, extras), describe_with_params)

    def _make(self, arrays, extras):
        if self.kind == "tensors":
            return self._tensors(arrays)
        if self.kind == "columns":
            return self._columns(arrays, extras)
        return self._parse(unpack_bytes(arrays[0]), extras.get("format", "json"))

    def _describe(self, data):
        is_nested = isinstance(data, dict) and self.has_nested_columns
        if is_nested or not self.is_joinable or self._has_no_column(data):
            return None, None  # an array may be one row's value here, not a column
        return describe(data)

    def _has_no_column(self, data):
        """Whether columns have names and none of them is there: rows are lost in such a frame."""
        if self.schema is None or self.schema.is_tensor_spec() or not self.schema.has_input_names():
            return False
        if isinstance(data, list):
            data = data[0] if data and isinstance(data[0], dict) else ()
        names = getattr(data, "columns", data if isinstance(data, dict) else ())
        return not any(name in names for name in self.schema.input_names())

    def _tensors(self, arrays):
        shaped = [
            array.reshape(array.shape[0]) if len(planned["shape"]) == 1 else array
            for planned, array in zip(self.inputs, arrays)
        ]
        if self.inputs[0]["key"] is None:
            return shaped[0]
        return {planned["key"]: array for planned, array in zip(self.inputs, shaped)}

    def _columns(self, arrays, extras):
        import pandas as pd

        objects = extras.get("objects", ())
        columns = {}
        for planned, array in zip(self.inputs, arrays):
            name = planned["key"]
            columns[name] = unpack_text(array) if planned["dtype"] == "str" else array[:, 0].copy()
            if name in objects:
                columns[name] = pd.Series(columns[name], dtype=object)
            elif not len(array):
                columns[name] = pd.Series(columns[name], dtype=planned["dtype"])
        frame = pd.DataFrame(columns)
        for name, values in extras.get("columns", {}).items():
            frame[name] = pd.Series(values, dtype=object)
        if "index" in extras:
            frame.index = extras["index"]
        return frame

    def _parse(self, body, form):
        from mlflow.pyfunc import scoring_server

        if form == "csv":
            text = io.StringIO(_decode(body))
            return scoring_server.parse_csv_input(text, schema=self.schema)
        if form == "parquet":
            return scoring_server.parse_parquet_input(io.BytesIO(body))
        fields = json.loads(body)
        parse = getattr(scoring_server, "_parse_json_data", None)
        if parse is not None:
            return parse(fields, self.metadata, self.schema)[0]
        data = {k: v for k, v in fields.items() if k in scoring_server.SUPPORTED_FORMATS}
        return scoring_server.infer_and_parse_data(data, self.schema)


def _decode(body):
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as exc:
        from mlflow.utils.proto_json_utils import MlflowInvalidInputException

        raise MlflowInvalidInputException(
            f"Ensure that input is a valid UTF-8 encoded string. Error: '{exc!r}'"
        ) from exc


def _is_hashable(key):
    """Whether items can be grouped by a key; names of columns may be lists and dictionaries."""
    try:
        return key is not None and isinstance(hash(key), int)
    except TypeError:
        return False


def _types(schema):
    return [spec.type for spec in schema.inputs]


# ---------------------------------------------------------------- the model


class Runner:
    """Calls the model with joined requests and finds the ones that fail.

    Args:
        predict: Takes the input and the parameters (a dict or None).
        max_rows: That the model takes at once; a request of more, whose rows the gateway could not
            cut, is cut here. None: any number.
        clock: Seconds, monotonic.
    """

    def __init__(self, predict, max_rows=None, clock=time.monotonic):
        self.predict = predict
        self.max_rows = max_rows
        self.clock = clock
        self.window = 0.0
        self.bisections = 0

    def run(self, items):
        """Position to packed answer, or to the exception, for items that share a key."""
        try:
            return self._call(items)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - a model may raise anything
            if len(items) == 1:
                _report(exc)
                return {items[0].position: _explain(exc, items[0])}
        # One bad request in 8 costs 2 or 3 batches of work this way instead of 8 calls. Where all
        # of them fail it would double the work, so beyond a limit each is run by itself.
        middle = len(items) // 2
        if self._may_bisect():
            halves = [items[:middle], items[middle:]]
        else:
            halves = [[item] for item in items]
        answers = {}
        for half in halves:
            answers.update(self.run(half))
        return answers

    def _may_bisect(self):
        now = self.clock()
        if now - self.window >= 1.0:
            self.window, self.bisections = now, 0
        self.bisections += 1
        return self.bisections <= BISECTIONS_PER_SECOND

    def _call(self, items):
        params = json.loads(items[0].params) if items[0].params else None
        if self.max_rows and len(items) == 1 and (items[0].rows or 0) > self.max_rows:
            return {items[0].position: self._call_in_pieces(items[0], params)}
        data = join([item.take() for item in items])
        started = self.clock()
        kind, names, columns, found = take_apart(self.predict(data, params))
        compute_us = int((self.clock() - started) * 1e6)
        if items[0].key is None:
            return {items[0].position: pack_answer(kind, names, columns, compute_us)}
        wanted = sum(item.rows for item in items)
        _check_rows(found, wanted)
        answers, start = {}, 0
        for item in items:
            stop = start + item.rows
            own = [column[start:stop] for column in columns]
            answers[item.position] = pack_answer(kind, names, own, compute_us)
            start = stop
        return answers

    def _call_in_pieces(self, item, params):
        """The packed answer to one request of more rows than the model takes at once."""
        data, answers, started = item.take(), [], self.clock()
        for start in range(0, item.rows, self.max_rows):
            piece = cut_rows(data, start, start + self.max_rows)
            answer = take_apart(self.predict(piece, params))
            _check_rows(answer[3], min(self.max_rows, item.rows - start))
            answers.append(answer)
        kind, names = answers[0][:2]
        if any(answer[:2] != (kind, names) for answer in answers):
            kind, names, columns, found = take_apart(self.predict(item.take(), params))
            _check_rows(found, item.rows)
        else:
            columns = [_chain([a[2][i] for a in answers]) for i in range(len(answers[0][2]))]
        return pack_answer(kind, names, columns, int((self.clock() - started) * 1e6))


def _check_rows(found, wanted):
    if found != wanted:
        returned = "a single value" if found is None else f"{found} outputs"
        raise RowMismatch(
            f"The model returned {returned} for {wanted} inputs; it cannot be batched."
        )


def _chain(columns):
    """A column of an answer whose rows come in pieces."""
    kinds = {(c.dtype, c.shape[1:]) if isinstance(c, np.ndarray) else None for c in columns}
    if len(kinds) == 1 and None not in kinds:
        return np.concatenate(columns)
    return [row for c in columns for row in (c.tolist() if isinstance(c, np.ndarray) else c)]


def _report(exc):
    """Write the model's own failures to the service log, not those of bad input."""
    if "Failed to enforce schema" not in str(exc):
        traceback.print_exception(type(exc), exc, exc.__traceback__, file=sys.stderr)


def _explain(exc, item):
    """MLflow's server says which data its refusal was about."""
    if _is_mlflow(exc):
        exc.message = f"Failed to predict data '{item.take()}'. \nError: {exc.message}"
    return exc


def _is_mlflow(exc):
    is_own = type(exc).__module__.startswith("mlflow.")
    return is_own and isinstance(getattr(exc, "message", None), str)


def message_of(exc, mask=str):
    """What the caller is told: MLflow's words as they are, others with their type; masked."""
    if isinstance(exc, RowMismatch):
        text = str(exc)
    elif _is_mlflow(exc):
        text = exc.message
    else:
        text = f"{UNEXPECTED}{type(exc).__name__}: {exc}"
    text = mask(text)
    if len(text) <= MAX_MESSAGE_LENGTH:
        return text
    return f"{text[: MAX_MESSAGE_LENGTH - KEPT_END - 5]} ... {text[-KEPT_END:]}"


def code_of(exc):
    """The code that MLflow's server would answer with, if that is one of a caller's fault."""
    code = getattr(exc, "error_code", None) if _is_mlflow(exc) else None
    return code if code in CODES else BAD_REQUEST


def _error(exc, mask):
    if isinstance(exc, RowMismatch):
        error = pb_utils.TritonError(message_of(exc, mask), pb_utils.TritonError.UNSUPPORTED)
    else:
        # The gateway takes the code off again.
        text = f"[{code_of(exc)}] {message_of(exc, mask)}"
        error = pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG)
    return pb_utils.InferenceResponse(error=error)


def _params_of(request):
    text = request.parameters()
    return (json.loads(text).get("params") or "") if text else ""


class TritonPythonModel:
    """What Triton's Python backend looks for."""

    def initialize(self, args):
        """Load the model that the parameter `spec` names."""
        # The stub's Python ignores PYTHONUNBUFFERED: else prints would show at its end only.
        sys.stdout.reconfigure(line_buffering=True)
        self.busy = BusyMark(args["model_instance_name"])
        config = json.loads(args["model_config"])
        spec = json.loads(config["parameters"]["spec"]["string_value"])
        self.mask = masker_of_environment()  # before the model is loaded, which may take them out
        os.environ["_MLFLOW_IS_IN_SERVING_ENVIRONMENT"] = "true"
        import inspect

        from mlflow import pyfunc

        model = pyfunc.load_model(spec["model_directory"])
        takes_params = "params" in inspect.signature(model.predict).parameters

        def predict(data, params):
            return model.predict(data, params=params) if takes_params else model.predict(data)

        self.names = [planned["name"] for planned in spec["plan"]["inputs"]]
        self.reader = Reader(spec["plan"], model)
        self.runner = Runner(predict, config.get("max_batch_size"))

    def execute(self, requests):
        """Answer one dynamic batch; an error is its own request's, never the batch's."""
        with self.busy:
            return self._execute(requests)

    def _execute(self, requests):
        responses = [None] * len(requests)
        groups = {}
        for position, request in enumerate(requests):
            try:
                arrays = [
                    read_tensor(pb_utils.get_input_tensor_by_name(request, name))
                    for name in self.names
                ]
                item = self.reader.read(position, arrays, _params_of(request))
                groups.setdefault(item.key or position, []).append(item)
            except Exception as exc:  # noqa: BLE001 - one request's, whatever it is
                responses[position] = _error(exc, self.mask)
        for items in groups.values():
            for position, answer in self.runner.run(items).items():
                responses[position] = self._respond(answer)
        return responses

    def _respond(self, answer):
        if not isinstance(answer, bytearray):
            return _error(answer, self.mask)
        array = np.frombuffer(answer, dtype=np.uint8).reshape(1, -1)
        return pb_utils.InferenceResponse(output_tensors=[write_tensor("out", array)])
