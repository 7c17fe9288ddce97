"""What every answer carries, pages, errors, files and predictions alike, from a live server."""

from __future__ import annotations

import time

import pytest
import requests

from tests.support.live_portal import Files, LivePortal

VOLUME = "/api/2.0/fs/files/Volumes/main/default/safe"


@pytest.fixture(scope="module")
def me(live_portal: LivePortal) -> Files:
    return Files(live_portal, live_portal.token("me"))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/login/", 200),
        ("GET", "/", 302),
        ("GET", "/no-such-page", 404),
        ("POST", "/login/", 403),  # without its CSRF token
        ("GET", "/static/css/shoal.css", 200),
        ("GET", "/static/none.css", 404),
        ("GET", "/healthz", 200),
        ("GET", "/.well-known/databricks-config", 200),
        ("GET", "/api/2.0/serving-endpoints", 200),
        ("GET", "/api/2.0/none", 404),
        ("GET", f"{VOLUME}/none", 404),
        ("PUT", f"{VOLUME}/new?overwrite=true", 204),
        ("GET", "/api/2.0/fs/transfer/forged", 403),
        ("POST", "/serving-endpoints/none/invocations", 404),
        ("GET", "/serving-endpoints/none", 404),
    ],
)
def test_every_answer_has_its_policy(me: Files, method: str, path: str, status: int) -> None:
    answer = me(method, path, allow_redirects=False)

    assert answer.status_code == status
    policy = answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "Cache-Control" in answer.headers
    is_static = path.startswith("/static/") and status == 200
    assert is_static or answer.headers["Cache-Control"].startswith(("private", "max-age=0"))
    assert "Server" not in answer.headers
    assert "X-Powered-By" not in answer.headers


def test_a_refused_host_has_the_policy_too(live_portal: LivePortal) -> None:
    variables = live_portal.variables
    try:
        live_portal.variables = variables | {"SHOAL_ALLOWED_HOSTS": "127.0.0.1"}
        url, process = live_portal.start_web()
    finally:
        live_portal.variables = variables
    try:
        answer = requests.get(f"{url}/login/", headers={"Host": "evil.example"}, timeout=30)
    finally:
        live_portal.kill(process)

    assert answer.status_code == 400
    assert "Content-Security-Policy" in answer.headers


def test_an_uploaded_page_is_a_download_and_never_a_page(me: Files) -> None:
    me("PUT", f"{VOLUME}/page.html?overwrite=true", data=b"<script>alert(1)</script>")
    answer = me("GET", f"{VOLUME}/page.html")

    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["Content-Security-Policy"]


def test_over_tls_cookies_are_secure_pages_redirect_and_calls_do_not(
    live_portal: LivePortal, me: Files
) -> None:
    variables = live_portal.variables
    try:
        live_portal.variables = variables | {"SHOAL_PUBLIC_URL": "https://shoal.example.org"}
        url, process = live_portal.start_web()
    finally:
        live_portal.variables = variables
    try:
        plain = requests.get(f"{url}/login/", allow_redirects=False, timeout=30)
        call = me.session.get(f"{url}/api/2.0/serving-endpoints", allow_redirects=False, timeout=30)
        tls = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "shoal.example.org"}
        secure = requests.get(f"{url}/login/", headers=tls, allow_redirects=False, timeout=30)
    finally:
        live_portal.kill(process)

    assert plain.status_code == 301
    assert plain.headers["Location"] == "https://shoal.example.org/login/"
    assert call.status_code == 200
    assert secure.status_code == 200
    assert secure.headers["Strict-Transport-Security"].startswith("max-age=")
    cookie = secure.headers["Set-Cookie"]
    assert "Secure" in cookie
    assert "SameSite=Lax" in cookie


def test_a_revoked_token_stops_within_two_seconds_in_every_process(
    live_portal: LivePortal, me: Files
) -> None:
    second, process = live_portal.start_web()
    value = live_portal.token("leaver")
    calls = [
        (method, base + path)
        for base in (live_portal.url, second)
        for method, path in (
            ("GET", "/api/2.0/token/list"),
            ("GET", f"{VOLUME}/new"),
            ("POST", "/serving-endpoints/none/invocations"),
        )
    ]

    def statuses() -> set[int]:
        headers = {"Authorization": f"Bearer {value}"}
        return {
            requests.request(method, url, headers=headers, json={}, timeout=30).status_code
            for method, url in calls
        }

    me("PUT", f"{VOLUME}/new?overwrite=true", data=b"x")
    try:
        end = time.monotonic() + 20
        while 401 in statuses():  # until the gateways have heard of it
            assert time.monotonic() < end
        assert statuses() == {200, 404}
        asked = {"Authorization": f"Bearer {value}"}
        url = f"{live_portal.url}/api/2.0/token"
        listed = requests.get(f"{url}/list", headers=asked, timeout=30).json()["token_infos"]
        body = {"token_id": listed[0]["token_id"]}
        requests.post(f"{url}/delete", headers=asked, json=body, timeout=30).raise_for_status()
        time.sleep(2)

        assert statuses() == {401}
    finally:
        live_portal.kill(process)
