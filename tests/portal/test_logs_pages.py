"""The log viewer's page without script, its lines as JSON, and the download."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client

from portal.endpoints.models import Endpoint, Replica
from portal.endpoints.states import ReplicaState
from portal.logs.services import service_log_text
from portal.rest import ResourceDoesNotExist
from serving.spec import Backend
from tests.support.factories import ReplicaFactory, UserFactory, live_endpoint, make_cast
from tests.support.logs import TRITON_START, write_lines, write_log, write_timed

pytestmark = pytest.mark.django_db


@pytest.fixture
def endpoint() -> Endpoint:
    return live_endpoint(endpoint_name="bert")


@pytest.fixture
def replica(endpoint: Endpoint) -> Replica:
    return Replica.objects.get()


@pytest.fixture
def reader(endpoint: Endpoint, client: Client) -> Client:
    client.force_login(endpoint.creator)
    return client


def page(reader: Client, query: str = "", status: int = 200) -> str:
    response = reader.get(f"/endpoints/bert/logs/?{query}")
    assert response.status_code == status
    return response.content.decode()


def texts(page: str) -> list[str]:
    found = re.findall(r'<span class="log-text">(.*?)</span>\n', page, re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]+>", "", text)) for text in found]


def link(page: str, label: str) -> str:
    found = re.search(rf'<a href="\?([^"]*)">{label}</a>', page)
    assert found is not None
    return html.unescape(found[1])


def lines(reader: Client, query: str = "") -> dict[str, Any]:
    response = reader.get(f"/endpoints/bert/logs/lines/?{query}")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


def download(endpoint: Endpoint, query: str = "") -> tuple[Any, str]:
    async def fetch() -> tuple[Any, str]:
        client = AsyncClient()
        await client.aforce_login(endpoint.creator)
        response: Any = await client.get(f"/endpoints/bert/logs/download/?{query}")
        if not response.streaming:
            return response, response.content.decode()
        return response, b"".join([part async for part in response.streaming_content]).decode()

    return async_to_sync(fetch)()


# ---------------------------------------------------------------- the page without script


def test_the_page_shows_the_last_500_lines_and_links_to_older_ones(
    reader: Client, replica: Replica
) -> None:
    write_lines(replica.directory, 1100)

    newest = page(reader)
    older = page(reader, link(newest, "Older lines"))
    oldest = page(reader, link(older, "Older lines"))
    newer = page(reader, link(oldest, "Newer lines"))

    assert texts(newest) == [f"line {n}" for n in range(601, 1101)]
    assert texts(older) == [f"line {n}" for n in range(101, 601)]
    assert texts(oldest) == [f"line {n}" for n in range(1, 101)]
    assert texts(newer) == [f"line {n}" for n in range(101, 601)]
    assert "Older lines" not in oldest


def test_tritons_lines_are_shown_as_they_are_and_ours_are_marked(
    reader: Client, replica: Replica
) -> None:
    write_log(replica.directory, TRITON_START)

    shown = page(reader)

    own, *servers = texts(shown)
    assert own.startswith("Shoal")
    assert servers == [text for _, text in TRITON_START[1:]]
    assert shown.count("data-own") == 1
    assert f"[ts/{replica.public_id}]" in shown


def test_markup_in_a_line_stays_text(reader: Client, replica: Replica) -> None:
    write_log(replica.directory, [("server", "<script>alert('x')</script> & \x1b[31m<b>\x1b[0m")])

    shown = page(reader)

    assert "<script>alert" not in shown
    assert texts(shown) == ["<script>alert('x')</script> & <b>"]
    assert '<span class="ansi-red">&lt;b&gt;</span>' in shown


def test_a_filter_is_a_form_that_works_by_get(reader: Client, replica: Replica) -> None:
    write_log(
        replica.directory,
        [("server", "INFO: fine"), ("server", "ERROR: broken"), ("server", "error in words")],
    )

    assert texts(page(reader, "q=error")) == ["ERROR: broken", "error in words"]
    assert texts(page(reader, "q=error&case=1")) == ["error in words"]
    assert texts(page(reader, "q=^e.*s$&regex=1")) == ["error in words"]
    assert texts(page(reader, "level=E")) == ["ERROR: broken"]
    marked = page(reader, "q=broken&mode=highlight")
    assert len(texts(marked)) == 3
    assert '<span class="log-match">broken</span>' in marked


def test_a_bad_pattern_says_how_to_mend_it(reader: Client, replica: Replica) -> None:
    write_lines(replica.directory, 3)

    shown = page(reader, "q=(&regex=1", status=400)

    assert "Not a regular expression" in shown
    assert 'aria-invalid="true"' in shown


def test_a_permalink_marks_its_line_among_fifty(reader: Client, replica: Replica) -> None:
    write_lines(replica.directory, 300)

    shown = page(reader, f"replica={replica.public_id}&line=100")

    assert len(texts(shown)) == 51
    marked = re.findall(
        r"data-marked>\s*<a class=\"log-number\" tabindex=\"-1\" href=\"([^\"]*)\">100<", shown
    )
    assert marked == [f"?replica={replica.public_id}&amp;line=100"]


def test_the_picker_offers_live_and_earlier_replicas_and_build_logs(
    reader: Client, replica: Replica
) -> None:
    write_lines(replica.directory, 1)
    old = ReplicaFactory(
        entity=replica.entity,
        deployment=replica.deployment,
        state=ReplicaState.STOPPED,
        exit_code=0,
        backend=Backend.STANDARD,
        is_wanted=False,
    )
    write_lines(old.directory, 1)
    gone = ReplicaFactory(
        entity=replica.entity, deployment=replica.deployment, state=ReplicaState.STOPPED
    )

    shown = page(reader)

    for title in ("Service logs", "Running replicas", "Earlier replicas, still kept", "Build logs"):
        assert title in shown
    assert f"?replica={replica.public_id}" in shown
    assert f"?replica={old.public_id}" in shown
    assert f"?replica={gone.public_id}" not in shown
    assert "?entity=main&amp;log=build" in shown
    assert f"Replica {old.public_id} stopped, exit code 0." in page(
        reader, f"replica={old.public_id}"
    )


def test_the_evidence_of_triton_leads_to_its_lines(reader: Client, replica: Replica) -> None:
    write_log(replica.directory, TRITON_START)

    shown = page(reader)

    assert "Triton active" in shown
    for line in (1, 2, 3, 4, 5):
        assert f"?replica={replica.public_id}&amp;line={line}" in shown


def test_the_standard_backend_has_its_own_chip_and_prefix(client: Client) -> None:
    endpoint = live_endpoint(endpoint_name="bert", throughput_optimized=False)
    replica = Replica.objects.get()
    write_lines(replica.directory, 1)
    client.force_login(endpoint.creator)

    shown = page(client)

    assert "Triton active" not in shown
    assert "Standard backend" in shown
    assert f"[std/{replica.public_id}]" in shown


def test_the_live_part_is_a_fragment_that_only_comes_when_it_changed(
    reader: Client, replica: Replica
) -> None:
    fragment = reader.get("/endpoints/bert/logs/status/").content.decode()
    seen = re.search(r"seen=([0-9a-f]+)", fragment)

    assert "<html" not in fragment
    assert "Triton active" in fragment
    assert seen is not None
    again = reader.get(f"/endpoints/bert/logs/status/?seen={seen[1]}")
    assert again.status_code == 204


# ---------------------------------------------------------------- lines as JSON


def test_lines_come_in_pages_by_cursor(reader: Client, replica: Replica) -> None:
    write_lines(replica.directory, 25)

    last = lines(reader, "limit=10")
    middle = lines(reader, f"before={last['first']}&limit=10")
    newer = lines(reader, f"after={middle['last']}&limit=4")

    assert [row["n"] for row in last["lines"]] == list(range(16, 26))
    assert [row["n"] for row in middle["lines"]] == list(range(6, 16))
    assert [row["n"] for row in newer["lines"]] == [16, 17, 18, 19]
    assert (last["behind"], newer["behind"]) == (0, 6)


def test_a_search_finds_what_the_first_page_does_not_hold(reader: Client, replica: Replica) -> None:
    store = write_lines(replica.directory, 1, "needle")
    store.append("server", ["hay"] * 3000)

    found = lines(reader, "q=needle")

    assert [row["n"] for row in found["lines"]] == [1]
    assert found["looked"] == 3001


def test_a_time_in_the_address_leads_to_its_lines(reader: Client, replica: Replica) -> None:
    write_timed(replica.directory, [1_700_000_000.0 + n for n in range(600)])

    found = texts(page(reader, "at=2023-11-14T22:18:20&limit=4"))  # 300 s later, in UTC
    same = lines(reader, "at=2023-11-14T23:18:20%2B01:00&limit=4")

    assert found == [f"INFO: at 1700000{n}" for n in (298, 299, 300, 301)]
    assert [line["t"] for line in same["lines"]] == found
    assert (same["has_older"], same["has_newer"], same["behind"]) == (True, True, 298)


@pytest.mark.parametrize("query", ["q=(&regex=1", "before=x", "at=soon", "q=(a%2B)%2B%24&regex=1"])
def test_bad_questions_are_told(reader: Client, replica: Replica, query: str) -> None:
    write_lines(replica.directory, 1, "a" * 40 + "!")

    response = reader.get(f"/endpoints/bert/logs/lines/?{query}")

    assert response.status_code == 400
    assert response.json()["message"]


# ---------------------------------------------------------------- download


def test_a_download_is_the_whole_log_with_prefixes(endpoint: Endpoint, replica: Replica) -> None:
    write_lines(replica.directory, 5000)

    response, text = download(endpoint, f"replica={replica.public_id}")

    prefix = f"[ts/{replica.public_id}]"
    assert text == "".join(f"{prefix} line {n}\n" for n in range(1, 5001))
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert re.fullmatch(
        rf'attachment; filename="bert-{replica.public_id}-\d{{8}}T\d{{6}}Z\.log"',
        response["Content-Disposition"],
    )


def test_a_download_can_be_filtered_timed_and_opened(endpoint: Endpoint, replica: Replica) -> None:
    write_log(replica.directory, [("server", "INFO: a"), ("server", "ERROR: b"), ("shoal", "c")])

    prefix = f"[ts/{replica.public_id}]"
    assert download(endpoint, "level=E")[1] == f"{prefix} ERROR: b\n"
    assert download(endpoint, "q=c")[1] == f"{prefix} [shoal] c\n"
    timed = download(endpoint, "times=1&q=a")[1]
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT[\d:.]+Z {re.escape(prefix)} INFO: a\n", timed)
    assert download(endpoint, "open=1")[0]["Content-Disposition"].startswith("inline")
    assert download(endpoint, "q=(&regex=1")[0].status_code == 400


# ---------------------------------------------------------------- who may


def test_a_viewer_reads_and_a_stranger_does_not_know_it() -> None:
    cast = make_cast()
    endpoint = cast.share(live_endpoint(endpoint_name="bert"))
    write_lines(Replica.objects.get().directory, 3)
    addresses = [f"/endpoints/{endpoint.name}/logs/{part}" for part in ("", "lines/", "status/")]

    def statuses(person: Any) -> set[int]:
        client = Client()
        client.force_login(person.user)
        return {client.get(address).status_code for address in addresses}

    assert statuses(cast.viewer) == statuses(cast.querier) == statuses(cast.admin) == {200}
    assert statuses(cast.stranger) == {404}


def test_nobody_is_sent_to_the_login(endpoint: Endpoint, client: Client) -> None:
    assert client.get("/endpoints/bert/logs/").status_code == 302
    assert client.get("/endpoints/bert/logs/lines/").status_code == 401


def test_another_endpoints_replica_is_not_found(reader: Client, replica: Replica) -> None:
    other = ReplicaFactory(public_id="other")
    write_lines(other.directory, 1)

    page(reader, "replica=other", status=404)
    page(reader, "entity=none", status=404)


@pytest.mark.parametrize("part", ["", "lines/", "status/", "stream/", "download/"])
def test_nothing_is_posted_to_a_log(reader: Client, replica: Replica, part: str) -> None:
    assert reader.post(f"/endpoints/bert/logs/{part}").status_code == 405


# ---------------------------------------------------------------- the text for the API


def test_the_api_gets_the_merged_newest_lines(endpoint: Endpoint, replica: Replica) -> None:
    store = write_lines(replica.directory, 3)
    store.say("Stopped.")

    prefix = f"[ts/{replica.public_id}]"
    assert service_log_text(endpoint, "main", 2) == f"{prefix} line 3\n{prefix} [shoal] Stopped.\n"
    with pytest.raises(ResourceDoesNotExist):
        service_log_text(endpoint, "none", 2)


def test_a_user_without_rights_is_not_the_creator(endpoint: Endpoint, client: Client) -> None:
    client.force_login(UserFactory())

    assert client.get("/endpoints/bert/logs/download/").status_code == 404
