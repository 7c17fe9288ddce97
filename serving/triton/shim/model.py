"""Runs an MLflow model inside Triton's Python backend, in the model's own environment.

Triton hands over the requests of one dynamic batch; those of the same shape and parameters become
one call of the model, whose answer is cut into each request's own rows. This file is copied into
every model repository, so it imports nothing of Shoal and keeps to Python 3.8.

Triton's stub was built against NumPy 1: under NumPy 2 its own conversions give wrong numbers or
nothing, so tensors go through DLPack there, and text never travels as a string tensor.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
import traceback

import numpy as np
import triton_python_backend_utils as pb_utils
from shoal_answers import pack_answer, take_apart
from shoal_busy import BusyMark
from shoal_masking import masker_of_environment
from shoal_requests import Reader, cut_rows, join

NUMPY2 = int(np.__version__.split(".")[0]) >= 2
MAX_MESSAGE_LENGTH = 4000
BISECTIONS_PER_SECOND = 200
KEPT_END = 1500  # of a message that is too long: what is wrong stands at its end
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
