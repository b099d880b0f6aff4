"""The whole story: send, consume, fail, wait, land it all in a table. `make demo` runs it.

A name server and a broker run in this process, in a folder that is gone afterwards. What uses them
are ordinary clients that reach them over the network, as yours would, and a Spark job.
`--without-spark` leaves the job out.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import logging
import queue
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset
from rich.console import Console
from rich.table import Table

from firearrow import (
    ConsumeFromWhere,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Retry,
    TransactionProducer,
    TransactionState,
    aio,
)
from firearrow.base.runtime import SystemClock
from firearrow.broker.config import BrokerConfig
from firearrow.cli.running import loop_factory
from firearrow.cli.standalone import Standalone
from firearrow.hot import KIND
from firearrow.nameserver.config import NameServerConfig
from firearrow.offline.check import check
from firearrow.offline.directory import StoreDirectory
from firearrow.pipeline import archive, sessions
from firearrow.pipeline.topics import TopicSelection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ORDERS = 2_000
TAGS = ("paid", "open", "refunded")
ONE_SECOND = 1  # delay level
PRICE = 20
TOPICS = ("orders", "payments", "reminders")
HEAP = {"spark.driver.memory": "512m"}
PATIENCE_S = 30
say = Console(highlight=False).print
numbers = itertools.count(1)


def title(text: str) -> None:
    say(f"[bold]{next(numbers)}. {text}[/]")


@contextmanager
def servers(folder: Path) -> Iterator[Standalone]:
    """Name server and broker, on a loop and in a thread of their own."""
    names = NameServerConfig(
        listen_port=0,
        kv_config_path=folder / "kvConfig.json",
        config_store_path=folder / "namesrv.properties",
    )
    running = Standalone(names, BrokerConfig(listen_port=0, store_path_root_dir=folder / "store"))
    loop = (loop_factory() or asyncio.new_event_loop)()
    thread = threading.Thread(target=loop.run_forever, name="servers")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(running.start(), loop).result(PATIENCE_S)
        try:
            yield running
        finally:
            asyncio.run_coroutine_threadsafe(running.stop(), loop).result(PATIENCE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def order(number: int) -> Message:
    return Message("orders", f"order {number}", tags=TAGS[number % 3], keys=f"order-{number}")


async def produce(nameservers: str) -> None:
    """Hundreds under way at once, as a busy service would have them."""
    async with aio.Producer("demo-shop", nameservers=nameservers) as producer:
        await producer.send(order(0))
        started = time.perf_counter()
        receipts = await asyncio.gather(*(producer.send(order(n)) for n in range(1, ORDERS)))
        rate = len(receipts) / (time.perf_counter() - started)
        assert all(receipt.ok for receipt in receipts)
    say(f"   {ORDERS} orders acknowledged, which means on disk; {rate:,.0f} a second")


def consume(nameservers: str) -> None:
    """A push consumer with a filter, whose first order fails and comes again."""
    done: queue.Queue[ReceivedMessage] = queue.Queue()

    def on_order(message: ReceivedMessage) -> None:
        if message.text == "order 0" and not message.reconsume_times:
            raise Retry("the bank does not answer", delay_level=ONE_SECOND)
        done.put(message)

    wanted = sum(1 for number in range(ORDERS) if number % 3 != 1)
    started = time.perf_counter()
    consumer = PushConsumer("demo-billing", nameservers=nameservers)
    consumer.subscribe("orders", "paid || refunded", on_order)
    with consumer:
        billed = [done.get(timeout=PATIENCE_S) for _ in range(wanted)]
    took_s = time.perf_counter() - started
    assert len({message.msg_id for message in billed}) == wanted
    again = next(message for message in billed if message.reconsume_times)
    say(f"   {wanted} billed, {ORDERS - wanted} left out by the broker; {took_s:.1f} s in all")
    say(f"   {again.text} failed, and came again after a second: retry {again.reconsume_times}")


def deliver_later(nameservers: str) -> None:
    got: queue.Queue[ReceivedMessage] = queue.Queue()
    consumer = PushConsumer("demo-mailer", nameservers=nameservers)
    consumer.subscribe("reminders", "*", got.put)
    with Producer("demo-shop", nameservers=nameservers) as producer:
        producer.send(Message("reminders", "your basket is waiting", delay_level=ONE_SECOND))
        started = time.perf_counter()
        producer.send(Message("reminders", "welcome"))
        with consumer:
            for _ in range(2):
                text = got.get(timeout=PATIENCE_S).text
                say(f"   after {time.perf_counter() - started:.1f} s: {text}")


def pay(nameservers: str) -> None:
    """An order and its message, both or neither; the database is a dictionary here."""
    accounts = {"alice": 100, "bob": 5}

    def withdraw(message: Message) -> TransactionState:
        if accounts[message.text] < PRICE:
            return TransactionState.ROLLBACK
        accounts[message.text] -= PRICE
        return TransactionState.COMMIT

    def ask_again(_: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    with TransactionProducer("demo-bank", check=ask_again, nameservers=nameservers) as producer:
        for customer in accounts:
            message = Message("payments", customer, keys=customer)
            state = producer.send_in_transaction(message, withdraw).state
            word = "seen by everybody" if state is TransactionState.COMMIT else "seen by nobody"
            say(f"   {customer}'s payment: {state.name.lower()}, {word}")
    counted = count(nameservers, "demo-book-keeping", "payments", 1)
    say(f"   a reader finds {sum(counted.values())} payment")


def count(nameservers: str, group: str, topic: str, messages: int) -> dict[str | None, int]:
    """A pull consumer reads a topic at its own pace; how many there are of each tag."""
    counts: dict[str | None, int] = {}
    with PullConsumer(
        group,
        nameservers=nameservers,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as reader:
        reader.subscribe(topic)
        while sum(counts.values()) < messages:
            for message in reader.poll(PATIENCE_S * 1000):
                counts[message.tags] = counts.get(message.tags, 0) + 1
        reader.commit()
    return counts


# --- the pipeline --------------------------------------------------------------------------------


def spark_in_background(folder: Path) -> concurrent.futures.Future[SparkSession]:
    """A session on two cores of this machine; Java is the machine's, or comes from a wheel."""
    starter = concurrent.futures.ThreadPoolExecutor(1)
    log = folder / "spark.log"
    started = starter.submit(sessions.start, "demo", master="local[2]", conf=HEAP, log=log)
    starter.shutdown(wait=False)
    return started


def land(started: concurrent.futures.Future[SparkSession], nameservers: str, folder: Path) -> None:
    """Two runs: everything, and then only what is new."""
    spark = started.result()
    options = archive.ArchiveOptions(TopicSelection(nameservers, TOPICS), str(folder))
    try:
        first = archive.run(spark, options)
        say(f"   first run: {first.facts['rowsWritten']:,} messages")
        with Producer("demo-shop", nameservers=nameservers) as producer:
            for number in range(3):
                producer.send(Message("orders", f"late order {number}", tags="open"))
        second = archive.run(spark, options)
        say(f"   3 more orders, second run: {second.facts['rowsWritten']} messages; none twice")
        show(spark, folder)
    finally:
        spark.stop()


def show(spark: SparkSession, folder: Path) -> None:
    """The table by Spark's SQL, and by a reader that has never heard of Spark."""
    spark.read.parquet(str(folder)).createOrReplaceTempView("archive")
    rows = spark.sql(
        """SELECT topic, coalesce(tags, '') AS tag, count(*) AS messages,
                  count(DISTINCT msgId) AS different, sum(length(body)) AS bytes
           FROM archive GROUP BY topic, tags ORDER BY topic, tags"""
    ).collect()
    table = Table("topic", "tag", title="in the table", title_justify="left")
    for column in ("messages", "different", "bytes", ""):
        table.add_column(column, justify="left" if not column else "right")
    most = max(row["messages"] for row in rows)
    for row in rows:
        bar = "▇" * max(1, row["messages"] * 20 // most)
        table.add_row(*(f"{value:,}" if isinstance(value, int) else value for value in row), bar)
    say(table)
    found = pyarrow.dataset.dataset(folder, partitioning="hive").count_rows()
    assert found == sum(row["messages"] for row in rows), "another reader sees another table"
    say(f"   {found:,} rows, read once more with pyarrow alone")


# --- the end -------------------------------------------------------------------------------------


def look_again(folder: Path) -> None:
    """The files, checked; and a new broker on them."""
    found = check(StoreDirectory(folder / "store"), now_ms=SystemClock().now_ms())
    assert not found.findings, found.findings
    say("   nothing is wrong with them")
    with servers(folder) as again:
        counts = count(again.nameserver.address, "demo-audit", "orders", ORDERS)
    say(f"   started again on the same directory: {sum(counts.values())} orders are there")


def main() -> None:
    logging.getLogger("firearrow").setLevel(logging.ERROR)  # a topic that is not there yet is fine
    with_spark = "--without-spark" not in sys.argv[1:]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="firearrow-demo-") as name:
        folder = Path(name)
        # Java takes a few seconds to start, and does so while the clients are at work.
        spark = spark_in_background(folder) if with_spark else None
        started = time.perf_counter()
        with servers(folder) as running:
            took_ms = (time.perf_counter() - started) * 1000
            nameservers = running.nameserver.address
            title(f"A cluster, ready in {took_ms:.0f} ms")
            say(f"   name server {nameservers}, broker {running.broker.address}, hot code: {KIND}")
            title("A producer sends orders")
            asyncio.run(produce(nameservers))
            title("A push consumer bills those that are paid or refunded")
            consume(nameservers)
            title("A transaction: the message counts if the withdrawal does")
            pay(nameservers)
            title("A message for later")
            deliver_later(nameservers)
            if spark is not None:
                title("A Spark job lands it all in a Parquet table, every message once")
                land(spark, nameservers, folder / "archive")
        title("Stopped. The files are RocketMQ's own; the checker looks at every one of them")
        look_again(folder)
    took_s = time.perf_counter() - began
    say(f"[green]Done in {took_s:.0f} s: everything went over the wire, as RocketMQ does it.[/]")


if __name__ == "__main__":
    main()
    sys.exit(0)
