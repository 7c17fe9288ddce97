"""What is masked in a replica's log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from serving.replica.environment import secret_values
from serving.replica.log_lines import LineSplitter
from serving.replica.masking import mask_of
from serving.spec import PythonEnvironment, ReplicaSpec, from_json, to_json
from tests.support.replicas import SavedModel, make_spec

PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nab\n-----END KEY-----\n"


def spec(variables: dict[str, str], *secret_names: str) -> ReplicaSpec:
    environment = PythonEnvironment(
        directory=Path("/e"), python_version="3.11", base_prefix=Path("/p"), libpython=None
    )
    return make_spec(
        "abcde",
        environment,
        SavedModel(directory=Path("/m"), signature=None),
        environment_variables=variables,
        secret_names=secret_names,
    )


def test_declared_secrets_are_masked_whatever_they_are_called() -> None:
    found = secret_values(
        spec({"DB": "hunter2!", "PLAIN": "shown and fine", "X": "abc"}, "DB", "X")
    )

    assert "hunter2!" in found
    assert "abc" not in found  # three characters would mask half of every line


def test_undeclared_variables_are_judged_by_their_names() -> None:
    found = secret_values(spec({"API_TOKEN": "longenough", "MY_TOKEN": "short", "X": "y" * 20}))

    assert found == ("longenough",)


@pytest.mark.parametrize(
    "write",
    [
        repr,
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
        lambda text: f"https://host/?key={quote(text, safe='')}&x=1",
        lambda text: f"https://host/?{urlencode({'key': text})}",
    ],
)
def test_a_secret_is_masked_as_python_json_and_urls_write_it(write: Callable[[str], str]) -> None:
    secret = "p\"a'/s s\nwörd"
    mask = mask_of(secret_values(spec({"DB": secret}, "DB")))

    masked = mask(f"it failed with {write(secret)}.")

    assert masked.count("[masked]") == 1
    assert "rd" not in masked


def test_each_line_of_a_secret_is_masked() -> None:
    mask = mask_of(secret_values(spec({"KEY": PEM}, "KEY")))

    assert mask("got MIIEvQIBADANBgkq here") == "got [masked] here"
    assert mask("ab") == "ab"


def test_the_longest_secret_is_masked_first() -> None:
    mask = mask_of(["abcd", "abcdefgh"])

    assert mask("abcdefgh abcd") == "[masked] [masked]"


@pytest.mark.parametrize("at", [0, 3, 4, 12, 19, 20])
def test_a_secret_that_a_long_line_cuts_in_two_does_not_show(at: int) -> None:
    secret = "s3cr3t-t0ken-of-twenty"
    splitter = LineSplitter(longest_bytes=100)
    (line,) = splitter.feed(b"x" * (100 - at) + secret.encode() + b" and more\n")

    masked = mask_of([secret])(line)

    assert "s3cr" not in masked
    assert masked.endswith("more bytes of this line were left out]")


def test_a_secret_larger_than_a_line_does_not_show() -> None:
    secret = "".join(chr(97 + i % 26) + str(i) for i in range(9000))
    (line,) = LineSplitter().feed(f"value: {secret}\n".encode())

    assert mask_of([secret])(line).startswith("value: [masked] [")


def test_other_long_lines_stay_as_they_are() -> None:
    (line,) = LineSplitter(longest_bytes=10).feed(b"nothing to see here\n")

    assert mask_of(["s3cr3t-t0ken"])(line) == line


def test_the_names_survive_the_spec_file() -> None:
    written = spec({"DB": "hunter2!"}, "DB")

    assert from_json(ReplicaSpec, to_json(written)).secret_names == ("DB",)
