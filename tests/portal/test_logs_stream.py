"""The live stream: server-sent events that go on where a connection broke, no line twice."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient

from portal.endpoints.models import Endpoint, Replica
from portal.endpoints.states import ReplicaState
from serving.replica.log_store import LogStore
from tests.support.factories import ReplicaFactory, UserFactory, live_endpoint

pytestmark = pytest.mark.django_db

PATIENCE_S = 20


@dataclass(frozen=True)
class Event:
    id: str
    name: str
    data: Any


@pytest.fixture
def endpoint() -> Endpoint:
    return live_endpoint()


@pytest.fixture
def replica(endpoint: Endpoint) -> Replica:
    return started(Replica.objects.get())


def started(replica: Replica) -> Replica:
    replica.directory.mkdir(parents=True, exist_ok=True)
    return replica


def parse(text: str) -> list[Event]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in block.splitlines() if line[:1] not in {"", ":"}
        )
        if "event" in fields:
            name, data = fields["event"], json.loads(fields["data"])
            found.append(Event(fields.get("id", ""), name, data))
    return found


async def events(
    endpoint: Endpoint, query: str = "", last_event_id: str | None = None
) -> AsyncGenerator[Event, None]:
    client = AsyncClient()
    await client.aforce_login(endpoint.creator)
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    address = f"/endpoints/{endpoint.name}/logs/stream/?{query}"
    response: Any = await client.get(address, headers=headers)
    assert response.status_code == 200
    assert response["Content-Type"] == "text/event-stream"
    async with aclosing(aiter(response.streaming_content)) as parts:
        async for part in parts:
            for event in parse(part.decode()):
                yield event


async def take_lines(
    endpoint: Endpoint, count: int, query: str = "", last_event_id: str | None = None
) -> tuple[list[tuple[str, int]], str]:
    """At least `count` lines, then a broken connection: (feed, number) of each, and the last id."""
    found: list[tuple[str, int]] = []
    last_id = ""
    async with (
        asyncio.timeout(PATIENCE_S),
        aclosing(events(endpoint, query, last_event_id)) as all_,
    ):
        async for event in all_:
            if event.name == "lines":
                found += [(row["k"], row["n"]) for row in event.data]
                last_id = event.id
            if len(found) >= count:
                break
    return found, last_id


def test_new_lines_arrive_with_all_that_a_row_shows(endpoint: Endpoint, replica: Replica) -> None:
    store = LogStore(replica.directory)
    store.append("server", ["before the page was opened"])

    async def first_lines() -> list[dict[str, Any]]:
        async with asyncio.timeout(PATIENCE_S), aclosing(events(endpoint)) as all_:
            async for event in all_:
                if event.name == "start":
                    store.append("server", ["ERROR: \x1b[31mbroken\x1b[0m"])
                    store.say("Stopped.")
                if event.name == "lines":
                    found: list[dict[str, Any]] = event.data
                    return found
        raise AssertionError("the stream ended")

    rows = async_to_sync(first_lines)()

    assert rows[0]["k"] == replica.public_id
    assert rows[0]["n"] == 2
    assert rows[0]["p"] == f"[ts/{replica.public_id}]"
    assert rows[0]["t"] == "ERROR: broken"
    assert rows[0]["l"] == "E"
    assert rows[0]["a"] == [[7, 13, "ansi-red"]]


def test_a_broken_stream_resumes_without_gaps_or_doubles_while_the_log_rotates(
    endpoint: Endpoint, replica: Replica
) -> None:
    other = started(
        ReplicaFactory(entity=replica.entity, deployment=replica.deployment, ready=True)
    )
    stores = [
        LogStore(each.directory, segment_bytes=4000, kept_segments=200) for each in (replica, other)
    ]
    total = 1500
    stopping = threading.Event()

    def write() -> None:
        for number in range(total):
            stores[number % 2].append("server", [f"line {number} of a writer that does not wait"])
            if number % 10 == 0:
                stopping.wait(0.01)

    async def read() -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        last_id: str | None = None
        while len(found) < total:
            wanted = min(120, total - len(found))
            lines, last_id = await take_lines(endpoint, wanted, "cursor=", last_id)
            found += lines
        return found

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = async_to_sync(read)()
    finally:
        stopping.set()
        writer.join()

    for each in (replica, other):
        numbers = [number for key, number in found if key == each.public_id]
        assert numbers == list(range(1, total // 2 + 1))
    assert len(list((replica.directory / "logs").iterdir())) > 3


def test_the_id_of_one_replicas_event_is_its_line(endpoint: Endpoint, replica: Replica) -> None:
    LogStore(replica.directory).append("server", ["one", "two", "three"])

    query = f"replica={replica.public_id}&cursor={replica.public_id}:1"
    lines, last_id = async_to_sync(take_lines)(endpoint, 2, query)

    assert lines == [(replica.public_id, 2), (replica.public_id, 3)]
    assert last_id == f"{replica.public_id}:3"


def test_the_header_counts_more_than_the_address(endpoint: Endpoint, replica: Replica) -> None:
    LogStore(replica.directory).append("server", ["one", "two", "three"])

    query = f"cursor={replica.public_id}:0"
    lines, _ = async_to_sync(take_lines)(endpoint, 1, query, f"{replica.public_id}:2")

    assert lines == [(replica.public_id, 3)]


def test_a_replica_that_starts_meanwhile_joins_from_its_first_line(
    endpoint: Endpoint, replica: Replica
) -> None:
    LogStore(replica.directory).append("server", ["old"])
    new = ReplicaFactory.build(
        entity=replica.entity, deployment=replica.deployment, public_id="newer"
    )
    LogStore(new.directory).append("server", ["first of the new one"])

    async def joined() -> tuple[str, int]:
        async with asyncio.timeout(PATIENCE_S), aclosing(events(endpoint)) as all_:
            async for event in all_:
                if event.name == "start":
                    await new.asave()
                if event.name == "lines":
                    return event.data[0]["k"], event.data[0]["n"]
        raise AssertionError("the stream ended")

    assert async_to_sync(joined)() == ("newer", 1)


def test_an_end_is_told_after_the_last_line(endpoint: Endpoint, replica: Replica) -> None:
    LogStore(replica.directory).append("server", ["the last words"])
    Replica.objects.update(state=ReplicaState.CRASHED, is_wanted=False, exit_code=137)

    async def all_events() -> list[Event]:
        query = f"replica={replica.public_id}&cursor="
        async with asyncio.timeout(PATIENCE_S):
            return [event async for event in events(endpoint, query)]

    found = async_to_sync(all_events)()

    assert [event.name for event in found] == ["start", "lines", "end"]
    assert found[-1].data["message"] == (
        f"Replica {replica.public_id} crashed, exit code 137 "
        "(killed, most often for want of memory)."
    )


def test_among_several_a_replicas_end_is_a_notice(endpoint: Endpoint, replica: Replica) -> None:
    async def notice() -> str:
        async with asyncio.timeout(PATIENCE_S), aclosing(events(endpoint)) as all_:
            async for event in all_:
                if event.name == "start":
                    await Replica.objects.aupdate(state=ReplicaState.STOPPED, exit_code=0)
                if event.name == "notice":
                    return str(event.data["message"])
        raise AssertionError("the stream ended")

    assert async_to_sync(notice)() == f"Replica {replica.public_id} stopped, exit code 0."


def test_a_quiet_stream_beats(
    endpoint: Endpoint, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.logs.events.HEARTBEAT_S", 0.3)

    async def beat() -> bool:
        client = AsyncClient()
        await client.aforce_login(endpoint.creator)
        response: Any = await client.get(f"/endpoints/{endpoint.name}/logs/stream/")
        async with (
            asyncio.timeout(PATIENCE_S),
            aclosing(aiter(response.streaming_content)) as parts,
        ):
            async for part in parts:
                if part == b": beat\n\n":
                    return True
        return False

    assert async_to_sync(beat)()


def test_a_reader_who_loses_the_right_loses_the_stream(
    endpoint: Endpoint, replica: Replica
) -> None:
    async def last() -> Event:
        found = Event("", "", None)
        async with asyncio.timeout(PATIENCE_S):
            async for event in events(endpoint):
                found = event
                if event.name == "start":
                    endpoint.creator = await other.aget()
                    await Endpoint.objects.aupdate(creator=endpoint.creator)
        return found

    UserFactory(username="next-owner")
    other = type(endpoint.creator).objects.filter(username="next-owner")

    assert async_to_sync(last)().name == "end"


@pytest.mark.parametrize(
    ("query", "status"), [("cursor=nonsense", 400), ("replica=other", 404), ("entity=none", 404)]
)
def test_a_place_that_is_not_there_is_refused(
    endpoint: Endpoint, replica: Replica, query: str, status: int
) -> None:
    async def answer() -> int:
        client = AsyncClient()
        await client.aforce_login(endpoint.creator)
        response = await client.get(f"/endpoints/{endpoint.name}/logs/stream/?{query}")
        return int(response.status_code)

    assert async_to_sync(answer)() == status


def test_strangers_and_nobody_get_no_stream(endpoint: Endpoint, replica: Replica) -> None:
    stranger = UserFactory()

    async def statuses() -> list[int]:
        address = f"/endpoints/{endpoint.name}/logs/stream/"
        client = AsyncClient()
        nobody = await client.get(address)
        await client.aforce_login(stranger)
        other = await client.get(address)
        return [nobody.status_code, other.status_code]

    assert async_to_sync(statuses)() == [401, 404]
