"""Mixed pairs: Apache's slave follows our master, ours follows Apache's; the logs are byte-equal.

And what a pair is for: when the master is killed, a Java consumer gets everything from the slave.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from .apache import Mqadmin, start_broker, start_name_server
from .ours import Ours, start_staying_client
from .processes import wait_until
from .replicas import LOG_FILE_BYTES, OurBroker, log_bytes, wait_for_equal_logs
from .rounds import start_java_round

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .apache import NameServer
    from .processes import Bench

SENDS: Final = ("sync-send", "async-send", "batch-send", "oneway-send")
COUNT: Final = 200
CONSUME_TIMEOUT_S: Final = 60.0
TABLES_TIMEOUT_S: Final = 90.0
SLAVE_SETTINGS: Final = {"brokerId": 1, "brokerRole": "SLAVE", "slaveReadEnable": "true"}


def send_all_ways(bench: Bench, nameserver: NameServer, topic: str) -> int:
    """Messages of every kind from Java; returns how many."""
    outcome = start_java_round(bench, nameserver, topic, SENDS, count=COUNT).finish()
    assert outcome.failures() == {}
    return len(SENDS) * COUNT


def consume_all(bench: Bench, nameserver: NameServer, topic: str, count: int) -> set[str]:
    """Bodies that a Java push consumer gets, with whatever broker there is."""
    ours = Ours(bench, nameserver, "", Mqadmin(bench, nameserver))
    client = start_staying_client(ours, topic, f"{topic}-reader")
    received = client.wait_for(count, timeout_s=CONSUME_TIMEOUT_S)
    client.process.kill()
    return {message["body"] for message in received}


def wait_for_topic(store: Path, topic: str) -> None:
    """Tables follow more slowly than the log: up to a minute in 5.3.3."""
    topics = store / "config" / "topics.json"
    wait_until(
        lambda: topics.exists() and topic in topics.read_text("utf-8"),
        timeout_s=TABLES_TIMEOUT_S,
        what="the topic in the slave's table",
    )


def test_apache_slave_has_the_log_of_our_master_byte_for_byte_and_serves_it(
    bench: Bench, unique: Callable[[str], str]
) -> None:
    nameserver = start_name_server(bench)
    admin = Mqadmin(bench, nameserver)
    name, topic = unique("mixed"), unique("replicated")
    master = OurBroker(bench, nameserver.address, name=name, cluster=name)
    slave = start_broker(bench, nameserver, name=name, cluster=name, extra=SLAVE_SETTINGS)
    slave.wait_until_started()
    count = send_all_ways(bench, nameserver, topic)
    end = wait_for_equal_logs(admin, master.address, slave.address)

    status = admin.run("haStatus", "-b", master.address).out
    assert "#MasterCommitLogMaxOffset" in status or str(end) in status
    assert "127.0.0.1" in status

    folder = slave.process.log_path.parent / "store" / "commitlog"
    assert log_bytes(master.commit_log, end) == log_bytes(folder, end)
    wait_for_topic(folder.parent, topic)
    master.kill()
    assert len(consume_all(bench, nameserver, topic, count)) == count


def test_our_slave_has_the_log_of_apaches_master_byte_for_byte_and_serves_it(
    bench: Bench, unique: Callable[[str], str]
) -> None:
    nameserver = start_name_server(bench)
    admin = Mqadmin(bench, nameserver)
    name, topic = unique("mixed"), unique("replicated")
    master = start_broker(
        bench,
        nameserver,
        name=name,
        cluster=name,
        extra={"brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": LOG_FILE_BYTES},
    )
    master.wait_until_started()
    nameserver.wait_for_broker(master)
    slave = OurBroker(bench, nameserver.address, name=name, cluster=name, broker_id=1, role="SLAVE")
    count = send_all_ways(bench, nameserver, topic)
    end = wait_for_equal_logs(admin, master.address, slave.address)

    folder = master.process.log_path.parent / "store" / "commitlog"
    assert log_bytes(slave.commit_log, end) == log_bytes(folder, end)
    status = admin.run("haStatus", "-b", master.address).out
    assert "127.0.0.1" in status
    wait_for_topic(slave.folder / "store", topic)
    master.process.kill()
    assert len(consume_all(bench, nameserver, topic, count)) == count


def test_apaches_synchronous_master_waits_for_our_slave(
    bench: Bench, unique: Callable[[str], str]
) -> None:
    nameserver = start_name_server(bench)
    name, topic = unique("synchronous"), unique("replicated")
    master = start_broker(
        bench,
        nameserver,
        name=name,
        cluster=name,
        extra={"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 9_000},
    )
    master.wait_until_started()
    nameserver.wait_for_broker(master)
    slave = OurBroker(bench, nameserver.address, name=name, cluster=name, broker_id=1, role="SLAVE")
    admin = Mqadmin(bench, nameserver)
    wait_until(
        lambda: "127.0.0.1" in admin.run("haStatus", "-b", master.address).out,
        timeout_s=CONSUME_TIMEOUT_S,
        what="our slave's connection",
    )
    outcome = start_java_round(bench, nameserver, topic, ["sync-send"], count=COUNT).finish()
    assert outcome.failures() == {}, json.dumps(outcome.failures())
    wait_for_equal_logs(admin, master.address, slave.address)
