"""`firearrow transaction` and `firearrow timer` on a real broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.cli_runs import Commands
from tests.support import PATIENCE_S

from firearrow import Admin, Message, Producer, PullConsumer, TransactionProducer, TransactionState
from firearrow.model.topic import CHECK_MAX_TIME_TOPIC
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def cli() -> Iterator[Commands]:
    with LocalCluster(recall_message_enable=True, transaction_check_max=1) as cluster:
        commands = Commands(cluster)
        commands.run("topic", "create", "orders", "--queues", 1)
        yield commands


def test_timers_are_counted_listed_and_taken_back(cli: Commands) -> None:
    with Producer("p", nameservers=cli.cluster.nameservers) as producer:
        for number in (2, 1):
            delay_ms = number * HOUR_MS
            producer.send(Message("orders", b"later", keys=f"k{number}", delay_ms=delay_ms))
    deadline = time.monotonic() + PATIENCE_S
    while cli.json("timer", "count") != [{"topic": "orders", "waiting": 2}]:
        assert time.monotonic() < deadline
    first, second = cli.json("timer", "ls", "orders")
    assert (first["keys"], second["keys"]) == ("k1", "k2")
    assert HOUR_MS - 60_000 < second["due_ms"] - first["due_ms"] < HOUR_MS + 60_000
    planned = cli.run("timer", "recall", "orders", first["recall_handle"], "--dry-run")
    assert planned.stdout.startswith(f"would take back message {first['msg_id']} of topic orders")
    assert len(cli.json("timer", "ls", "orders")) == 2
    done = cli.json("timer", "recall", "orders", first["recall_handle"])
    assert done["msg_id"] == first["msg_id"]
    (left,) = cli.json("timer", "ls", "orders")
    assert left["msg_id"] == second["msg_id"]
    refused = cli.run("timer", "recall", "orders", "no handle", code=2)
    assert "is not Base64" in refused.stderr


def test_open_transactions_are_listed_and_parked_ones_asked_about_again(cli: Commands) -> None:
    cluster = cli.cluster
    with TransactionProducer(
        "payers", nameservers=cluster.nameservers, check=lambda _: TransactionState.UNKNOWN
    ) as producer:
        producer.send_in_transaction(Message("orders", b"half"), lambda _: TransactionState.UNKNOWN)
        (row,) = cli.json("transaction", "ls")
        assert (row["topic"], row["group"], row["checks"]) == ("orders", "payers", 0)
        with Admin(nameservers=cluster.nameservers) as admin:
            (found,) = admin.open_transactions()
            assert found.total == 1
            assert found.transactions[0].transaction_id == row["transaction_id"]
        cluster.advance(minutes=1)
        (row,) = cli.json("transaction", "ls")
        assert row["checks"] == 1
        assert row["age_s"] >= 60
        cluster.advance(minutes=1)
        deadline = time.monotonic() + PATIENCE_S
        while cli.json("transaction", "ls"):
            assert time.monotonic() < deadline
    with PullConsumer("looks", nameservers=cluster.nameservers) as consumer:
        (queue,) = consumer.queues(CHECK_MAX_TIME_TOPIC)
        consumer.assign([queue])
        consumer.seek(queue, 0)
        (parked,) = consumer.poll(timeout_ms=int(PATIENCE_S * 1_000))
    planned = cli.json("transaction", "resume", parked.offset_msg_id, "--dry-run")
    assert planned["transactions"] == 1
    assert cli.json("transaction", "ls") == []
    cli.run("transaction", "resume", parked.offset_msg_id)
    (row,) = cli.json("transaction", "ls")
    assert row["checks"] == 0
