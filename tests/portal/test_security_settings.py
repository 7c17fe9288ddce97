"""Production settings are safe, and what makes them unsafe is said with its cure."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from portal.proxies import TrustedProxies
from tests.support.live_portal import ROOT

HTTPS = {"SHOAL_PUBLIC_URL": "https://shoal.example.org"}
WEAK = {"SHOAL_SECRET_KEY": "secret" * 20}


def plain_environment() -> dict[str, str]:
    """What a person's shell has: nothing of Shoal's or of the tests'."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "DJANGO_"))}


def manage(data: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "manage.py", *arguments],
        cwd=ROOT,
        env=plain_environment() | {"SHOAL_DATA_DIR": str(data)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def setting(data: Path, expression: str, **variables: str) -> str:
    code = f"from django.conf import settings; print(repr({expression}))"
    done = manage(data, "shell", "-v", "0", "-c", code, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_production_settings_pass_the_deployment_check(tmp_path: Path) -> None:
    done = manage(tmp_path / "data", "check", "--deploy", "--fail-level", "INFO", **HTTPS)

    assert done.returncode == 0, done.stderr


def test_a_local_start_has_nothing_to_complain_of(tmp_path: Path) -> None:
    done = manage(tmp_path / "data", "check", "--fail-level", "INFO")

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (HTTPS | {"SHOAL_DEBUG": "true"}, "shoal.E001"),
        ({"SHOAL_HOST": "0.0.0.0", "SHOAL_DEBUG": "true"}, "shoal.E001"),
        (HTTPS | {"SHOAL_ALLOWED_HOSTS": "*"}, "shoal.W002"),
        (HTTPS | WEAK, "shoal.E004"),
        ({"SHOAL_HOST": "0.0.0.0"} | WEAK, "shoal.E004"),
        ({"SHOAL_HOST": "0.0.0.0"}, "shoal.W005"),
        ({"SHOAL_PUBLIC_URL": "http://shoal.example.org"}, "shoal.W005"),
        (HTTPS | {"SHOAL_TRUSTED_PROXIES": "0.0.0.0/0"}, "shoal.W006"),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value.values())[:60],
)
def test_what_is_unsafe_is_named_with_its_cure(
    tmp_path: Path, variables: dict[str, str], expected: str
) -> None:
    done = manage(tmp_path / "data", "check", **variables)

    assert expected in done.stderr
    assert "HINT" in done.stderr
    assert (done.returncode != 0) == (".E" in expected)


def test_new_data_is_private(tmp_path: Path) -> None:
    manage(tmp_path / "data", "check")

    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data" / "secret_key").stat().st_mode) == 0o600
    assert len((tmp_path / "data" / "secret_key").read_text()) > 50


def test_data_that_others_can_read_is_named(tmp_path: Path) -> None:
    manage(tmp_path / "data", "check")
    (tmp_path / "data").chmod(0o755)
    open_directory = manage(tmp_path / "data", "check")
    (tmp_path / "data" / "secret_key").chmod(0o644)
    open_key = manage(tmp_path / "data", "check")

    assert open_directory.returncode == 0
    assert f"chmod 700 {tmp_path / 'data'}" in open_directory.stderr
    assert open_key.returncode != 0
    assert "shoal.E003" in open_key.stderr


def test_processes_that_start_together_have_one_key(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from portal.settings import SECRET_KEY as k; print(k)"]
    starts = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=plain_environment() | {"SHOAL_DATA_DIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    keys = {start.communicate(timeout=60)[0].strip() for start in starts}

    assert len(keys) == 1
    assert len(keys.pop()) > 50
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


def test_an_https_address_turns_on_what_needs_it(tmp_path: Path) -> None:
    names = "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_HSTS_SECONDS > 0"
    facts = f"[{', '.join(f'settings.{name}' for name in names)}]"

    assert setting(tmp_path, facts, **HTTPS) == "[True, True, True]"
    assert setting(tmp_path, facts) == "[False, False, False]"
    known = setting(tmp_path, "settings.ALLOWED_HOSTS", **HTTPS)
    assert known == "['shoal.example.org', '127.0.0.1', 'localhost', '[::1]']"
    prefixed = {"SHOAL_PUBLIC_URL": "https://example.org:8443/shoal/"}
    origins = setting(tmp_path, "settings.CSRF_TRUSTED_ORIGINS", **prefixed)
    assert origins == "['https://example.org:8443']"


@pytest.mark.parametrize("value", ["shoal.example.org", "ftp://x", "https://", "https://x?a=b"])
def test_a_public_url_that_is_none_stops_the_start(tmp_path: Path, value: str) -> None:
    done = manage(tmp_path, "check", SHOAL_PUBLIC_URL=value)

    assert done.returncode != 0
    assert "SHOAL_PUBLIC_URL is" in done.stderr


def test_a_proxy_that_is_no_address_stops_the_start(tmp_path: Path) -> None:
    done = manage(tmp_path, "check", SHOAL_TRUSTED_PROXIES="10.0.0.0/8,proxy")

    assert "SHOAL_TRUSTED_PROXIES holds 'proxy'" in done.stderr


# ---------------------------------------------------------------- forwarded headers


def settled(client: str, **headers: str) -> tuple[str, str, str, set[str]]:
    """Caller, scheme, host and the names of all headers, as the application sees them."""
    sent = [(b"host", b"inner:8000")]
    sent += [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    proxies = TrustedProxies([ip_network("127.0.0.1"), ip_network("10.0.0.0/8")])
    scope: dict[str, Any] = {"client": (client, 1), "scheme": "http", "headers": sent}
    result = proxies.settle(scope)
    found = {name.decode(): value.decode() for name, value in result["headers"]}
    return result["client"][0], result["scheme"], found["host"], set(found)


def test_a_trusted_proxy_says_who_calls_and_how() -> None:
    seen = settled(
        "127.0.0.1",
        x_forwarded_for="203.0.113.7",
        x_forwarded_proto="https",
        x_forwarded_host="shoal.example.org",
    )

    assert seen == ("203.0.113.7", "https", "shoal.example.org", {"host"})


def test_anybody_else_is_not_believed() -> None:
    seen = settled(
        "203.0.113.9",
        x_forwarded_for="127.0.0.1",
        x_forwarded_proto="https",
        x_forwarded_host="evil.example.org",
    )

    assert seen == ("203.0.113.9", "http", "inner:8000", {"host"})


@pytest.mark.parametrize(
    ("said", "caller"),
    [
        ("198.51.100.1, 203.0.113.7", "203.0.113.7"),  # the first one is the caller's own claim
        ("203.0.113.7, 10.1.2.3", "203.0.113.7"),
        ("10.1.2.3", "127.0.0.1"),
        ("not an address", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_the_caller_is_the_last_address_that_is_no_proxy(said: str, caller: str) -> None:
    assert settled("127.0.0.1", x_forwarded_for=said)[0] == caller


def test_an_unknown_scheme_is_nothing() -> None:
    assert settled("127.0.0.1", x_forwarded_proto="gopher")[1] == "http"
