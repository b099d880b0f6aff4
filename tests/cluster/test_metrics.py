"""Metrics of running servers, scraped over HTTP and read by Prometheus' own parser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support import running_broker, running_nameserver

from firearrow.aio import (
    ConsumeFromWhere,
    Message,
    Producer,
    PullConsumer,
    TransactionProducer,
    TransactionState,
)
from firearrow.base.errors import ConfigError
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.metrics import endpoint
from firearrow.metrics.settings import MetricsExporter
from firearrow.nameserver.config import NameServerConfig
from firearrow.nameserver.server import NameServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support import ServedBroker

    from firearrow.metrics.endpoint import Endpoint

PROM: Final[dict[str, Any]] = {
    "metrics_exporter_type": MetricsExporter.PROM,
    "metrics_prom_exporter_port": 0,
}
GUIDE: Final = Path(__file__).parents[2] / "docs" / "guides" / "metrics.md"
DASHBOARD: Final = Path(__file__).parents[2] / "docs" / "grafana" / "firearrow.json"


async def exchange(server: Endpoint | None, raw: bytes) -> tuple[int, bytes]:
    """Send some bytes, read the answer to its end."""
    assert server is not None
    url = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write(raw)
        answer = await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"chunked" in head:
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            whole += body[: int(size, 16)]
            body = body[int(size, 16) + 2 :]
        body = whole
    return int(head.split(b" ")[1]), body


async def get(server: Endpoint | None, path: str) -> tuple[int, str]:
    status, body = await exchange(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return status, body.decode()


class Scrape:
    """All series of a page."""

    def __init__(self, text: str) -> None:
        self.families = {one.name: one for one in text_string_to_metric_families(text)}
        self.samples = [sample for one in self.families.values() for sample in one.samples]
        self.names = {sample.name for sample in self.samples}
        self.declared = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))

    def value(self, name: str, **labels: str) -> float:
        found = [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) == 1, f"{name}{labels}: {found}"
        return found[0]


async def scrape(server: Endpoint | None) -> Scrape:
    status, text = await get(server, "/metrics")
    assert status == 200
    return Scrape(text)


@contextlib.asynccontextmanager
async def traffic(served: ServedBroker) -> AsyncIterator[None]:
    """Ten messages of which a group leaves some; one waits for its time; a transaction is open."""
    names = served.nameserver.address
    async with Producer("shop", nameservers=names) as producer:
        for number in range(10):
            await producer.send(Message("orders", f"order {number}", keys=str(number)))
        await producer.send(Message("orders", "later", delay_ms=3_600_000))
    async with PullConsumer(
        "billing",
        nameservers=names,
        pull_batch=1,
        auto_commit=False,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as consumer:
        consumer.subscribe("orders")
        taken = 0
        while taken < 10:
            taken += len(await consumer.poll(timeout_ms=5_000))
        await consumer.commit()
    async with Producer("shop", nameservers=names) as producer:
        for number in range(4):
            await producer.send(Message("orders", f"more {number}"))
    check: Final = lambda _: TransactionState.UNKNOWN  # noqa: E731
    async with TransactionProducer("payers", nameservers=names, check=check) as payers:
        message = Message("orders", "half", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"})
        await payers.send_in_transaction(message, check)
        yield


async def test_a_scrape_tells_what_happened(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **PROM) as served, traffic(served):
        found = await scrape(served.broker.metrics)
    orders = {"topic": "orders", "is_system": "false"}
    billing = {"topic": "orders", "consumer_group": "billing", "is_retry": "false"}
    # Also those that wait for their time, or for the end of their transaction.
    assert found.value("rocketmq_messages_in_total", **orders) == 16
    assert found.value("rocketmq_throughput_in_total", **orders) > 14 * 90
    assert found.value("rocketmq_messages_out_total", **billing) >= 10
    assert found.value("rocketmq_consumer_lag_messages", **billing) == 4
    assert found.value("rocketmq_consumer_ready_messages", **billing) == 4
    assert found.value("rocketmq_consumer_lag_latency", **billing) >= 0
    assert found.value("rocketmq_half_messages", topic="orders") == 1
    assert found.value("rocketmq_timing_messages", topic="orders") == 1
    assert found.value("rocketmq_producer_connections", language="python") >= 1
    sends = {"request_code": "send_message_v2", "response_code": "success"}
    assert found.value("rocketmq_rpc_latency_count", **sends) >= 14
    assert found.value("firearrow_flush_latency_count") >= 1
    assert found.value("firearrow_store_writable") == 1
    assert found.value("rocketmq_storage_size") > 14 * 90
    assert found.value("process_resident_memory_bytes") > 1_000_000
    assert all(
        one.labels["cluster"] == "DefaultCluster" and one.labels["node_id"] == "broker-a"
        for one in found.samples
    )


async def test_a_name_server_tells_of_its_brokers(tmp_path: Path) -> None:
    async with running_nameserver(**PROM) as names:
        settings = BrokerConfig(
            store_path_root_dir=tmp_path, listen_port=0, namesrv_addr=names.server.address
        )
        broker = Broker(settings)
        await broker.start()
        try:
            found = await scrape(names.server.metrics)
        finally:
            await broker.stop()
        assert found.value("firearrow_nameserver_brokers", node_type="nameserver") == 1
        assert found.value("firearrow_nameserver_topics") > 5
        assert found.value("firearrow_connections") == 1
        assert await get(names.server.metrics, "/ready") == (200, '{"status": "ready"}\n')


async def test_ready_says_why_not(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **PROM) as served:
        metrics = served.broker.metrics
        assert (await get(metrics, "/ready"))[0] == 200
        served.broker.state.store.refusal = "the disk is full"
        status, text = await get(metrics, "/ready")
        assert status == 503
        assert json.loads(text) == {"status": "not ready", "reasons": ["the disk is full"]}
        assert await get(metrics, "/health") == (200, '{"status": "alive"}\n')
        served.broker.state.store.refusal = ""


async def test_a_broker_that_no_name_server_knows_is_not_ready(tmp_path: Path) -> None:
    async with running_nameserver() as names:
        gone = names.server.address
    broker = Broker(
        BrokerConfig(store_path_root_dir=tmp_path, listen_port=0, namesrv_addr=gone, **PROM)
    )
    await broker.start()
    try:
        status, text = await get(broker.metrics, "/ready")
    finally:
        await broker.stop()
    assert status == 503
    assert gone in json.loads(text)["reasons"][0]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /metrics SPDY/3\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", 200),
    ],
)
async def test_odd_requests_get_an_answer(tmp_path: Path, raw: bytes, status: int) -> None:
    async with running_broker(tmp_path, **PROM) as served:
        assert (await exchange(served.broker.metrics, raw))[0] == status


async def test_peers_that_say_nothing_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "CONNECTIONS_MAX", 2)
    monkeypatch.setattr(endpoint, "REQUEST_MS", 50)
    async with running_broker(tmp_path, **PROM) as served:
        assert served.broker.metrics is not None
        silent = [
            await asyncio.open_connection("127.0.0.1", served.broker.metrics.port) for _ in range(4)
        ]
        for reader, _ in silent:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 20) == b""
        assert (await get(served.broker.metrics, "/health"))[0] == 200
        for _, writer in silent:
            writer.close()


async def test_metrics_are_off_unless_asked_for(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        assert served.broker.metrics is None


async def test_a_taken_port_ends_the_start_with_its_name(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "one", **PROM) as served:
        assert served.broker.metrics is not None
        settings = {**PROM, "metrics_prom_exporter_port": served.broker.metrics.port}
        other = Broker(
            BrokerConfig(store_path_root_dir=tmp_path / "two", listen_port=0, **settings)
        )
        with pytest.raises(ConfigError, match="metricsPromExporterPort"):
            await other.start()
        names = NameServer(NameServerConfig(listen_port=0, **settings))
        with pytest.raises(ConfigError, match="metricsPromExporterPort"):
            await names.start()


@pytest.mark.parametrize("role", [Broker, NameServer])
def test_an_open_address_needs_a_decision(role: type[Broker | NameServer]) -> None:
    config = BrokerConfig if role is Broker else NameServerConfig
    with pytest.raises(ConfigError, match="reachable from other machines"):
        role(config(metrics_prom_exporter_host="0.0.0.0"))  # type: ignore[arg-type]


async def test_the_dashboard_asks_only_for_what_is_exported(tmp_path: Path) -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
        for name in re.findall(r"\b(?:rocketmq|firearrow|process)_\w+", target["expr"])
    }
    assert len(asked) > 20
    async with running_broker(tmp_path, **PROM) as served, running_nameserver(**PROM) as names:
        async with traffic(served):
            broker = await scrape(served.broker.metrics)
        nameserver = await scrape(names.server.metrics)
    exported = broker.declared | nameserver.declared | broker.names | nameserver.names
    assert asked - exported == set()


async def test_new_topics_cost_a_line_each_and_no_more(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **PROM) as served:
        before = await scrape(served.broker.metrics)
        statistics = served.broker.state.statistics
        for number in range(1_500):
            statistics.add("TOPIC_PUT_NUMS", f"topic-{number}")
        after = await scrape(served.broker.metrics)
        assert len(after.samples) - len(before.samples) - 1_500 in range(12)


async def test_the_guide_names_what_is_exported_and_nothing_else(tmp_path: Path) -> None:
    named = set(re.findall(r"`((?:rocketmq|firearrow|process)_\w+)`", GUIDE.read_text("utf-8")))
    named -= {"rocketmq_message_size"}  # said not to exist
    async with running_broker(tmp_path, **PROM) as served, running_nameserver(**PROM) as names:
        broker, nameserver = await scrape(served.broker.metrics), await scrape(names.server.metrics)
    assert named == broker.declared | nameserver.declared


def test_up_serves_metrics_where_its_ready_line_says(tmp_path: Path) -> None:
    guide = GUIDE.read_text("utf-8")
    (command,) = re.findall(r"^\$ firearrow (up .*)$", guide, re.MULTILINE)
    answers = dict(re.findall(r"^\$ curl http://127.0.0.1:5557(\S+)\n(.*)$", guide, re.MULTILINE))
    free = ["--data", str(tmp_path), "--nameserver-port", "0", "--broker-port", "0"]
    words = [*command.replace("5557", "0").split(), *free]
    process = subprocess.Popen(
        [sys.executable, "-m", "firearrow", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        found = re.fullmatch(
            r"ready: name server \S+, broker [^,]+, metrics (http://[\d.:]+)/metrics\n", ready
        )
        assert found is not None, ready
        assert len(answers) == 2
        for path, said in answers.items():
            with urlopen(found[1] + path, timeout=20) as answer:
                assert answer.read().decode() == said + "\n"
        with urlopen(found[1] + "/metrics", timeout=20) as answer:
            assert Scrape(answer.read().decode()).value("rocketmq_topic_number") > 5
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.communicate()
