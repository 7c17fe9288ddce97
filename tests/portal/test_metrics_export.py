"""`GET .../metrics`: the mirrored product's names, from what gateways and replicas say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis
from django.test import Client

from portal.endpoints import runtime
from portal.endpoints.models import Endpoint, Replica
from serving import bus
from serving.metering import SLOT_S, Tally
from serving.replica.status import STATUS_FILE
from serving.spec import GpuUsage, Usage, to_json
from tests.support.factories import Cast, live_endpoint, make_cast

pytestmark = pytest.mark.django_db

SAMPLE = re.compile(r'^(\w+)\{((?:\w+="[^"\n]*",?)+)\} ([\d.e+-]+) (\d{13})$')
MAIN = {"endpoint_name": "live", "served_entity_name": "main"}
USAGE = Usage(
    cpu_percent=12.5,
    memory_bytes=2**30,
    memory_percent=40.0,
    gpus=(GpuUsage(index=1, busy_percent=87.0, memory_bytes=2**33, memory_percent=50.0),),
)

SUPERVISOR = """
import sys
from pathlib import Path
from serving.replica.lock import SupervisorLock

lock = SupervisorLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""

Samples = dict[tuple[str, str], float]


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def endpoint(cast: Cast) -> Iterator[Endpoint]:
    """A live endpoint whose replica's supervisor seems to run."""
    made = live_endpoint(creator=cast.admin.user, endpoint_name="live")
    row = Replica.objects.get()
    shutil.rmtree(row.directory, ignore_errors=True)
    row.directory.mkdir(parents=True)
    status = replace(runtime.status_of_row(row), usage=USAGE)
    (row.directory / STATUS_FILE).write_text(to_json(status))
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(row.directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"held\n"
        yield made
        supervisor.communicate()


def scrape(cast: Cast) -> Samples:
    """Every sample by name and labels; each line has the format."""
    answer = Client().get(
        "/api/2.0/serving-endpoints/live/metrics",
        headers={"Authorization": f"Bearer {cast.admin.token}", "Accept": "text/plain"},
    )
    assert answer["Content-Type"].startswith("text/plain")
    found: Samples = {}
    for line in answer.content.decode().splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP \w+ .+|TYPE \w+ (gauge|counter|histogram))", line)
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        labels = json.dumps(dict(re.findall(r'(\w+)="([^"]*)"', sample[2])), sort_keys=True)
        assert (sample[1], labels) not in found
        assert abs(int(sample[4]) / 1000 - time.time()) < 60
        found[sample[1], labels] = float(sample[3])
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, json.dumps(MAIN | labels, sort_keys=True)]


def count(client: redis.Redis, endpoint: Endpoint, tally: Tally, *, name: str = "main") -> None:
    """Let a gateway have counted this just now."""
    slot = bus.meter_slot_key(endpoint.public_id, int(time.time() // SLOT_S))
    for key, fields in (
        (bus.meter_key(endpoint.public_id), tally.fields(name)),
        (slot, tally.status_fields(name)),
    ):
        client.hset(key, mapping={k: str(v) for k, v in fields.items()})


def test_traffic_is_told_by_class_for_the_last_minute_and_as_histograms_for_ever(
    cast: Cast, endpoint: Endpoint, valkey: redis.Redis
) -> None:
    tally = Tally()
    tally.statuses = {200: 7, 400: 2, 429: 1, 503: 1}
    tally.retried = 2
    tally.rows = 70
    for ms in (0.2, 4.0, 4.5, 900.0):
        tally.total.add(ms)
    tally.compute.add(3.0)
    tally.queue.add(0.4)
    count(valkey, endpoint, tally)

    samples = scrape(cast)

    assert value(samples, "request_count_total") == 11
    assert value(samples, "request_4xx_count_total") == 3
    assert value(samples, "request_5xx_count_total") == 1
    assert value(samples, "request_latency_ms_count") == 4
    assert value(samples, "request_latency_ms_sum") == pytest.approx(908.7)
    below = [value(samples, "request_latency_ms_bucket", le=le) for le in ("0.5", "5", "+Inf")]
    assert below == [1, 3, 4]
    assert value(samples, "model_prediction_latency_ms_sum") == 3
    assert value(samples, "model_queue_time_ms_count") == 1
    assert value(samples, "shoal_requests_total", status="429") == 1
    assert value(samples, "shoal_retried_requests_total") == 2
    assert value(samples, "shoal_rows_total") == 70


def test_an_endpoint_that_nobody_asked_has_all_names_at_zero(
    cast: Cast, endpoint: Endpoint, valkey: redis.Redis
) -> None:
    samples = scrape(cast)

    assert value(samples, "request_count_total") == 0
    assert value(samples, "request_latency_ms_bucket", le="+Inf") == 0
    assert value(samples, "provisioned_concurrent_requests_total") == 4


def test_use_of_the_node_is_what_the_replicas_say(
    cast: Cast, endpoint: Endpoint, valkey: redis.Redis
) -> None:
    samples = scrape(cast)

    assert value(samples, "cpu_usage_percentage") == 12.5
    assert value(samples, "mem_usage_percentage") == 40
    assert value(samples, "gpu_usage_percentage", gpu="gpu1") == 87
    assert value(samples, "gpu_mem_usage_percentage", gpu="gpu1") == 50


def test_the_state_is_told_in_names_of_our_own(
    cast: Cast, endpoint: Endpoint, valkey: redis.Redis
) -> None:
    samples = scrape(cast)

    assert samples["shoal_endpoint_ready", json.dumps({"endpoint_name": "live"})] == 1
    assert value(samples, "shoal_replicas", state="READY") == 1
    assert value(samples, "shoal_triton_active") == 1


def test_what_never_reached_an_entity_is_the_endpoints_own(
    cast: Cast, endpoint: Endpoint, valkey: redis.Redis
) -> None:
    tally = Tally()
    tally.statuses = {429: 5}
    count(valkey, endpoint, tally, name="")

    samples = scrape(cast)

    alone = json.dumps({"endpoint_name": "live"})
    assert samples["request_4xx_count_total", alone] == 5
    assert ("request_latency_ms_count", alone) not in samples
