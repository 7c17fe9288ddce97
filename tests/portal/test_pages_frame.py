"""What every page has: the frame, its headers, errors in the right shape, colours one can read."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.http import HttpRequest
from django.template import Context, Template
from django.template.loader import render_to_string
from django.test import Client, RequestFactory, override_settings
from django.urls import reverse
from django.utils import timezone

from portal.accounts.models import User
from portal.accounts.services import create_token
from portal.secrets.models import SecretScope
from portal.secrets.services import create_scope
from portal.ui import errors
from portal.ui.templatetags import shoal
from portal.ui.tones import ICONS, Chip, Tone
from tests.support.factories import AdminFactory, ModelVersionFactory, UserFactory

pytestmark = pytest.mark.django_db

BASE = Path(settings.BASE_DIR)
TEMPLATES = sorted((BASE / "templates").rglob("*.html"))
STYLESHEET = (BASE / "static/css/shoal.css").read_text()
ERROR_KEYS = {"error_code", "message", "details", "request_id"}


@pytest.fixture
def admin() -> User:
    return AdminFactory(username="root")


@pytest.fixture
def page(client: Client, admin: User) -> Client:
    client.force_login(admin)
    return client


def urls_of_pages(admin: User) -> list[str]:
    version = ModelVersionFactory(staged=True)
    token, _ = create_token(admin)
    name = version.model.name
    if not SecretScope.objects.filter(name="db").exists():
        create_scope(admin, "db")
    return [
        reverse("settings"),
        reverse("tokens"),
        reverse("token-revoke", args=[token.public_id]),
        reverse("password"),
        reverse("previews"),
        reverse("secrets"),
        reverse("secret-scope", args=["db"]),
        reverse("secret-scope-delete", args=["db"]),
        reverse("audit"),
        reverse("users"),
        reverse("user-create"),
        reverse("user", args=[admin.pk]),
        reverse("user-deactivate", args=[admin.pk]),
        reverse("user-password", args=[admin.pk]),
        reverse("models"),
        reverse("model", args=[name]),
        reverse("model-version", args=[name, version.version]),
        reverse("endpoints"),
        reverse("endpoint-create"),
    ]


# ---------------------------------------------------------------- pages


def test_every_page_has_a_title_one_heading_and_its_landmarks(page: Client, admin: User) -> None:
    titles = set()
    for url in urls_of_pages(admin):
        answer = page.get(url)
        text = answer.content.decode()

        assert answer.status_code == 200, url
        title = re.search(r"<title>(.+?) · Shoal</title>", text)
        assert title, url
        titles.add(title[1])
        assert len(re.findall(r"<h1[ >]", text)) == 1, url
        assert re.search(r"<h1>\s*\S", text), url
        assert text.count("<main") == 1, url
        assert 'class="skip" href="#content"' in text, url
        assert text.count('role="status"') == 1, url
    assert len(titles) == len(urls_of_pages(admin))


def test_every_page_wants_a_login(client: Client, admin: User) -> None:
    for url in urls_of_pages(admin):
        answer = client.get(url)
        assert answer.status_code == 302, url
        assert answer["Location"] == f"{reverse('login')}?next={url}"


def test_every_page_has_the_policy_and_a_request_id(page: Client, admin: User) -> None:
    for url in [*urls_of_pages(admin), "/nope/", reverse("healthz")]:
        answer = page.get(url)
        policy = answer["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer["X-Request-Id"]
    assert page.get("/", headers={"X-Request-Id": "mine"})["X-Request-Id"] == "mine"


def test_the_rail_marks_where_one_is(page: Client) -> None:
    text = page.get(reverse("models")).content.decode()

    assert text.count("aria-current=") == 1
    assert re.search(r'href="/models/"[^>]*aria-current="page"', text)


def test_a_live_region_of_somebody_logged_out_reloads_the_page(client: Client) -> None:
    version = ModelVersionFactory(staging=True)
    url = reverse("model-version-status", args=[version.model.name, version.version])

    answer = client.get(url, headers={"HX-Request": "true"})

    assert answer.status_code == 200
    assert answer["HX-Refresh"] == "true"
    assert answer.content == b""


def test_liveness_asks_nobody(client: Client, django_assert_num_queries: object) -> None:
    with django_assert_num_queries(0):  # type: ignore[operator]  # a fixture without types
        answer = client.get("/healthz")

    assert (answer.status_code, answer.content) == (200, b"ok\n")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.relative_to(BASE)))
def test_no_template_has_inline_script_or_style(template: Path) -> None:
    text = re.sub(r"\{#.*?#\}", "", template.read_text(), flags=re.S)

    assert not re.search(r"<style|\sstyle=|javascript:|\shx-on", text)
    assert not re.search(r"\son[a-z]+\s*=", text)
    for attributes, body in re.findall(r"<script([^>]*)>(.*?)</script>", text, flags=re.S):
        assert "src=" in attributes
        assert not body.strip()


def test_every_script_and_icon_that_templates_name_exists() -> None:
    sprite = (BASE / "static/icons.svg").read_text()
    for template in TEMPLATES:
        text = template.read_text()
        for name in re.findall(r"\{% static ['\"]([^'\"]+)['\"] %\}", text):
            assert (BASE / "static" / name).is_file(), f"{template}: {name}"
        for name in re.findall(r"\{% icon \"([a-z-]+)\"", text):
            assert f'id="{name}"' in sprite, f"{template}: {name}"
    for name in ICONS.values():
        assert f'id="{name}"' in sprite


def test_script_modules_import_files_that_exist_and_are_short() -> None:
    for script in (BASE / "static/js").rglob("*.js"):
        text = script.read_text()
        assert len(text.splitlines()) <= 150, script
        for name in re.findall(r"from \"(\./[^\"]+|\.\./[^\"]+)\"|import \"(\./[^\"]+)\"", text):
            assert (script.parent / "".join(name)).is_file(), f"{script}: {name}"


# ---------------------------------------------------------------- taste


@pytest.mark.parametrize(
    ("name", "value"), [("theme", "dark"), ("times", "local"), ("density", "compact")]
)
def test_taste_is_kept_and_right_in_the_first_byte(page: Client, name: str, value: str) -> None:
    answer = page.post(reverse("preferences"), {name: value, "next": "/models/?search=x"})

    assert answer["Location"] == "/models/?search=x"
    assert f'data-{name}="{value}"' in page.get(reverse("models")).content.decode()


def test_unknown_taste_and_other_hosts_are_ignored(client: Client) -> None:
    answer = client.post(reverse("preferences"), {"theme": "neon", "next": "https://evil.example/"})

    assert answer["Location"] == "/"
    assert "theme" not in answer.cookies
    client.cookies["theme"] = "neon"
    assert 'data-theme="system"' in client.get(reverse("login")).content.decode()


# ---------------------------------------------------------------- errors


def test_errors_of_pages_are_in_the_frame_with_the_request_id(page: Client) -> None:
    answer = page.get("/nope/")
    text = answer.content.decode()

    assert answer.status_code == 404
    assert "<h1>Not found</h1>" in text
    assert f"<code>{answer['X-Request-Id']}</code>" in text
    assert 'class="rail"' in text


def test_a_fault_of_ours_says_sorry_and_gives_the_request_id(
    rf: RequestFactory,
) -> None:
    request = rf.get("/models/")
    request.user = UserFactory()
    answer = errors.server_error(request)

    assert answer.status_code == 500
    assert b"Sorry." in answer.content

    answer = errors.server_error(rf.get("/api/2.0/anything"))
    assert answer.status_code == 500
    assert set(json.loads(answer.content)) == ERROR_KEYS


def test_a_form_from_elsewhere_is_refused_in_the_frame(admin: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin)

    answer = client.post(reverse("tokens"), {})

    assert answer.status_code == 403
    assert b"The form has expired" in answer.content


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete", "head"])
@pytest.mark.parametrize("path", ["/api/", "/api/2.0/nope", "/api/2.0/token/nope/", "/api/9/x?y=1"])
@pytest.mark.parametrize("with_token", [True, False])
def test_unknown_api_paths_are_a_json_404(
    admin: User, method: str, path: str, with_token: bool
) -> None:
    client = Client(enforce_csrf_checks=True)
    headers = {"Authorization": f"Bearer {create_token(admin)[1]}"} if with_token else {}

    answer = getattr(client, method)(path, headers=headers)

    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/json"
    assert answer["x-databricks-org-id"].isdigit()
    if method != "head":
        body = answer.json()
        assert set(body) == ERROR_KEYS
        assert body["error_code"] == "ENDPOINT_NOT_FOUND"
        assert body["request_id"] == answer["X-Request-Id"]


API_ROUTES = [
    ("get", "/api/2.0/token/list"),
    ("post", "/api/2.0/token/create"),
    ("post", "/api/2.0/token/delete"),
    ("get", "/api/2.0/preview/scim/v2/Me"),
    ("get", "/api/2.0/previews"),
    ("patch", "/api/2.0/previews/throughput_optimized"),
]


@pytest.mark.parametrize(("method", "path"), API_ROUTES)
def test_api_errors_have_one_shape(client: Client, admin: User, method: str, path: str) -> None:
    token = {"Authorization": f"Bearer {create_token(admin)[1]}"}

    nobody = getattr(client, method)(path)
    assert nobody.status_code == 401
    wrong_method = client.put(path, headers=token)
    assert wrong_method.status_code == 404
    assert wrong_method.json()["error_code"] == "ENDPOINT_NOT_FOUND"
    for answer in (nobody, wrong_method):
        assert set(answer.json()) == ERROR_KEYS
    if method == "get":
        return
    for body in (
        b"{",
        b"[]",
        b"\xff",
        b'{"comment": NaN}',
        b'{"token_id": "\\u0000"}',
        b"[" * 9999,
    ):
        answer = getattr(client, method)(path, body, content_type="application/json", headers=token)
        assert answer.status_code == 400, body
        assert set(answer.json()) == ERROR_KEYS


@override_settings(ALLOWED_HOSTS=["good.example"])
def test_a_host_that_is_not_ours_is_a_400(page: Client, rf: RequestFactory) -> None:
    answer = page.get(reverse("models"), headers={"Host": "evil.example"})

    assert answer.status_code == 400
    assert b"<h1>Bad request</h1>" in answer.content
    refusal = errors.bad_request(rf.get("/api/2.0/previews"), ValueError())
    assert set(json.loads(refusal.content)) == ERROR_KEYS


# ---------------------------------------------------------------- tags


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2, "just now"),
        (12, "12 s ago"),
        (200, "3 min ago"),
        (7200, "2 h ago"),
        (86400, "1 day ago"),
        (3 * 86400, "3 days ago"),
        (-90, "in 1 min"),
        (-2 * 86400 - 5, "in 2 days"),
    ],
)
def test_times_read_relative(seconds: int, text: str) -> None:
    now = timezone.now()

    assert shoal.relative_text(now - timedelta(seconds=seconds), now) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (999, "999 B"), (1024, "1 KiB"), (98_566_144, "94 MiB"), (634 * 2**20, "634 MiB"),
     (1_340_000_000, "1.25 GiB"), (999 * 2**30, "999 GiB"), (None, "")],
)  # fmt: skip
def test_sizes_read_in_binary_units(amount: int | None, text: str) -> None:
    assert shoal.filesize(amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0421, "42 ms"),
        (12.34, "12.3 s"),
        (245, "4 min 5 s"),
        (7800, "2 h 10 min"),
        (3e5, "3 days"),
    ],
)
def test_durations_read_in_words(seconds: float, text: str) -> None:
    assert shoal.duration(seconds) == text


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"inputs": [[0.1, 0.2], [1, 2]]},
        {"a": [{"b": None}], "c": "ü\n"},
        "x",
        [[[1]], []],
        5,
    ],
)
def test_pretty_json_is_still_the_same_json(value: object) -> None:
    assert json.loads(shoal.pretty_json(value)) == value


def test_pretty_json_keeps_rows_on_one_line_and_is_bounded() -> None:
    assert shoal.pretty_json({"inputs": [[1, 2], [3, 4]]}) == (
        '{\n  "inputs": [\n    [1, 2],\n    [3, 4]\n  ]\n}'
    )
    assert shoal.pretty_json(list(range(100, 140))) == (
        f"[\n  {', '.join(map(str, range(100, 119)))},\n"
        f"  {', '.join(map(str, range(119, 138)))},\n  138, 139\n]"
    )
    text = shoal.pretty_json([[0.5] * 1000] * 1000)
    assert len(text) < 21_000
    assert text.endswith("more characters")


def test_a_chip_has_an_icon_and_a_word_and_is_escaped() -> None:
    text = shoal.chip(Chip("<Failed>", Tone.BAD))

    assert 'class="chip chip-bad"' in text
    assert "#cross-circle" in text
    assert "&lt;Failed&gt;" in text
    assert shoal.chip(None) == ""


def test_copy_buttons_and_code_are_escaped() -> None:
    template = Template("{% code_block text 'curl' %}{% copy_button text %}")

    text = template.render(Context({"text": '<b> "quoted" & done'}))

    assert "<b>" not in text
    assert text.count("&lt;b&gt; &quot;quoted&quot; &amp; done") == 3


def test_the_frame_renders_for_nobody(rf: RequestFactory) -> None:
    request: HttpRequest = rf.get("/nope/")

    text = render_to_string("ui/error.html", {"title": "Not found"}, request=request)

    assert reverse("login") in text


# ---------------------------------------------------------------- colours


def tokens(theme: int) -> dict[str, str]:
    """Name to colour, for light (0) and dark (1)."""
    pairs = re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", STYLESHEET)
    return {name: (light, dark)[theme] for name, light, dark in pairs}


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


GROUNDS = ("ground", "surface", "sunken", "raised")
TEXT_PAIRS = [
    *((text, ground) for text in ("text", "muted", "link") for ground in GROUNDS),
    *((f"{tone}-text", f"{tone}-ground") for tone in Tone),
    *((f"{tone}-text", "raised") for tone in ("bad", "busy", "warn")),
    *(("danger", ground) for ground in GROUNDS),
    ("on-accent", "accent"),
    ("on-accent", "accent-strong"),
    ("on-danger", "danger"),
    ("text", "mark"),
    ("text", "line"),
    *(("muted", f"{tone}-ground") for tone in ("good", "idle")),
]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT_PAIRS)
def test_text_is_readable(theme: int, text: str, ground: str) -> None:
    colours = tokens(theme)

    assert contrast(colours[text], colours[ground]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("edge", ["control", "focus", "accent"])
def test_controls_and_focus_can_be_seen(theme: int, ground: str, edge: str) -> None:
    colours = tokens(theme)

    assert contrast(colours[edge], colours[ground]) >= 3


def test_the_stylesheet_stays_small() -> None:
    assert len(STYLESHEET.splitlines()) <= 1200
