from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal import env

ROOT = Path(__file__).parents[2]


def test_each_setting_is_documented_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    read = set()
    for file in (ROOT / "portal").rglob("*.py"):
        read |= set(re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', file.read_text()))

    assert len(read) > 10
    assert {name for name in read if f"`{name}`" not in readme} == set()


@pytest.mark.parametrize("value", ["0", "70000", "eight", "8000.5"])
def test_a_bad_number_names_variable_value_and_bounds(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SHOAL_PORT", value)

    with pytest.raises(ImproperlyConfigured, match=rf"SHOAL_PORT is .*{value}.*at most 65535"):
        env.integer("SHOAL_PORT", 8000, least=1, most=65535)


def test_a_choice_names_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_ACCELERATOR", "tpu")

    with pytest.raises(ImproperlyConfigured, match="'tpu'; expected one of auto, cuda"):
        env.choice("SHOAL_ACCELERATOR", "auto", ("auto", "cuda"))


def test_a_secret_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("swordfish\n")
    monkeypatch.delenv("SHOAL_ADMIN_PASSWORD", raising=False)
    monkeypatch.setenv("SHOAL_ADMIN_PASSWORD_FILE", str(tmp_path / "password"))

    assert env.secret("SHOAL_ADMIN_PASSWORD") == "swordfish"


def test_a_missing_secret_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SHOAL_ADMIN_PASSWORD", raising=False)
    monkeypatch.setenv("SHOAL_ADMIN_PASSWORD_FILE", str(tmp_path / "none"))

    with pytest.raises(ImproperlyConfigured, match="SHOAL_ADMIN_PASSWORD_FILE cannot be read"):
        env.secret("SHOAL_ADMIN_PASSWORD")


@pytest.mark.parametrize(("value", "meant"), [("on", True), ("0", False), ("TRUE", True)])
def test_booleans_are_read_in_the_usual_words(
    monkeypatch: pytest.MonkeyPatch, value: str, *, meant: bool
) -> None:
    monkeypatch.setenv("SHOAL_DEBUG", value)

    assert env.boolean("SHOAL_DEBUG", default=not meant) is meant
