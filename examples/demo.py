"""The main job end to end: start, send, consume, fail, wait, look again. `make demo` runs it.

A name server and a broker run in this process, in a folder that is gone afterwards. What uses them
are ordinary clients that reach them over the network, as yours would.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS = 2_000
TAGS = ("paid", "open", "refunded")
ONE_SECOND = 1  # delay level
PATIENCE_S = 30
say = Console(highlight=False).print


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
        yield running
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


def report(nameservers: str, group: str) -> None:
    """A pull consumer reads everything at its own pace, and says how far it is."""
    counts = dict.fromkeys(TAGS, 0)
    with PullConsumer(
        group,
        nameservers=nameservers,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as reader:
        reader.subscribe("orders")
        while sum(counts.values()) < ORDERS:
            for message in reader.poll(PATIENCE_S * 1000):
                counts[message.tags or ""] += 1
        reader.commit()
        table = Table("tag", "orders", "", title="orders by tag", title_justify="left")
        for tag, count in counts.items():
            table.add_row(tag, str(count), "▇" * (count * 30 // ORDERS))
        say(table)
        places = [f"{queue.queue_id}: {reader.committed(queue)}" for queue in reader.assignment]
    say(f"   committed, by queue: {', '.join(places)}")


def main() -> None:
    logging.getLogger("firearrow").setLevel(logging.ERROR)  # a topic that is not there yet is fine
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.perf_counter()
        with servers(folder) as running:
            took_ms = (time.perf_counter() - started) * 1000
            nameservers = running.nameserver.address
            say(
                f"1. Name server {nameservers} and broker {running.broker.address}, "
                f"ready in {took_ms:.0f} ms (hot code: {KIND})"
            )
            say("2. A producer sends orders:")
            asyncio.run(produce(nameservers))
            say("3. A push consumer bills those that are paid or refunded:")
            consume(nameservers)
            say("4. A message for later:")
            deliver_later(nameservers)
            say("5. A pull consumer counts:")
            report(nameservers, "demo-report")
        say("6. Stopped. The files are RocketMQ's own; the checker looks at every one of them:")
        found = check(StoreDirectory(folder / "store"), now_ms=SystemClock().now_ms())
        assert not found.findings, found.findings
        say("   nothing is wrong with them")
        with servers(folder) as again:
            say("7. Started again, on the same directory:")
            report(again.nameserver.address, "demo-audit")
    say("[green]Done: everything went over the wire, as RocketMQ clients do it.[/]")


if __name__ == "__main__":
    main()
    sys.exit(0)
