"""Blocking clients and forks: gunicorn's and multiprocessing's way of starting workers.

Each case is a program of its own: a test process has threads that a fork must not copy.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

from tests.support import PATIENCE_S, UpProcess

if TYPE_CHECKING:
    from pathlib import Path

PRELUDE = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks with threads
from firearrow import ConsumeFromWhere, FirearrowError, Message, aio
from firearrow import Producer, PullConsumer, PushConsumer
nameservers = sys.argv[1]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

def texts(count):
    with PullConsumer("reader", nameservers=nameservers, consume_from_where=FIRST) as reader:
        reader.subscribe("forks")
        found = []
        while len(found) < count:
            messages = reader.poll(20_000)
            assert messages, found
            found += [message.text for message in messages]
        return sorted(found)
"""


def run(folder: Path, program: str) -> str:
    with UpProcess(folder / "data") as up:
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(program), up.nameserver],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_producer_from_before_the_fork_works_on_both_sides(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
        with Producer("p", nameservers=nameservers, timeout_ms=20_000) as producer:
            producer.send(Message("forks", "before"))
            before = producer.client_id
            child = os.fork()
            if child == 0:
                producer.send(Message("forks", "child"))
                assert producer.client_id != before
                soon = [producer.send_soon(Message("forks", "x")) for _ in range(2)]
                assert len({future.result().msg_id for future in soon}) == 2
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            producer.send(Message("forks", "parent"))  # the child's end did not end our connection
            assert producer.client_id == before
        print(texts(5))
        """,
    )
    assert out.strip() == "['before', 'child', 'parent', 'x', 'x']"


def test_multiprocessing_workers_share_a_producer(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
        import multiprocessing
        producer = Producer("p", nameservers=nameservers, timeout_ms=20_000)
        producer.start()
        producer.send(Message("forks", "0"))

        def work(number):
            return producer.send(Message("forks", str(number))).msg_id

        with multiprocessing.get_context("fork").Pool(2) as pool:
            ids = pool.map(work, range(1, 9), chunksize=1)
        assert len(set(ids)) == 8, ids
        producer.close()
        print(texts(9))
        """,
    )
    assert out.strip() == str([str(number) for number in range(9)])


def test_what_cannot_cross_a_fork_says_so(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
        import asyncio
        consumer = PushConsumer("g", nameservers=nameservers)
        consumer.subscribe("forks", "*", print)
        consumer.start()
        loop = asyncio.new_event_loop()
        producer = aio.Producer("p", nameservers=nameservers)
        loop.run_until_complete(producer.start())
        child = os.fork()
        if child == 0:
            for use in (consumer.pause, lambda: consumer.client_id):
                try:
                    use()
                except FirearrowError as error:
                    assert "child" in error.remedy and "fork" in str(error), error
                else:
                    os._exit(1)
            consumer.close()  # forgotten, not ended: the parent's goes on

            async def send():
                await producer.send(Message("forks", "x"))

            try:
                asyncio.new_event_loop().run_until_complete(send())
            except FirearrowError as error:
                assert "after a fork" in str(error), error
            else:
                os._exit(2)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        consumer.close()
        loop.run_until_complete(producer.close())
        print("fine")
        """,
    )
    assert out.strip() == "fine"


def test_what_was_only_created_before_the_fork_starts_in_the_child(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
        import threading
        arrived = threading.Event()
        producer = Producer("p", nameservers=nameservers, timeout_ms=20_000)
        consumer = PushConsumer("g", nameservers=nameservers, consume_from_where=FIRST)
        consumer.subscribe("forks", "*", lambda message: arrived.set())
        consumer.subscribe("other", "*", lambda message: None)
        consumer.unsubscribe("other")
        reader = PullConsumer("r", nameservers=nameservers, consume_from_where=FIRST)
        reader.subscribe("forks")
        child = os.fork()
        if child == 0:
            consumer.subscribe("late", "*", lambda message: None)
            with producer, consumer, reader:
                producer.send(Message("forks", "x"))
                assert arrived.wait(20)
                topics = {one.topic for one in consumer.running_info().subscription_set}
                assert topics == {"forks", "late", "%RETRY%g"}, topics
                assert [one.text for one in reader.poll(20_000)] == ["x"]
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with consumer:  # and here
            pass
        print("fine")
        """,
    )
    assert out.strip() == "fine"
