"""Runs scenarios of RocketMQ's C++ client, through its C interface, and prints JSON lines.

Usage: round.py nameserver=HOST:PORT topic=T group=G [count=N] [timeout=SECONDS] SCENARIO...
The lines, the options and the meaning of the verdict are those of Round.java. The package
`rocketmq` brings the compiled client; this program needs nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from rocketmq.client import (  # type: ignore[import-not-found]
    Message,
    MessageModel,
    Producer,
    PullConsumer,
    PushConsumer,
    SendStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Facts = dict[str, Any]
QUEUES = 4  # of a topic that the first message makes


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class Seen:
    """What consumers got: bodies in their order, and a word when there are more."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.queues: set[int] = set()
        self.grown = threading.Condition()

    def add(self, message: Any) -> None:
        with self.grown:
            self.bodies.append(text(message.body))
            self.queues.add(message.queue_id)
            self.grown.notify_all()

    def compare(self, expected: Iterable[str], timeout_s: float, ignored: str = "none") -> Facts:
        wanted = set(expected)
        with self.grown:
            self.grown.wait_for(lambda: wanted <= set(self.bodies), timeout_s)
            found = {body for body in self.bodies if not body.startswith(ignored)}
        return {
            "expected": len(wanted),
            "received": len(found),
            "missing": sorted(wanted - found),
            "unexpected": sorted(found - wanted),
        }


class Round:
    def __init__(self, options: dict[str, str]) -> None:
        self.nameserver = options["nameserver"]
        self.topic = options["topic"]
        self.group = options["group"]
        self.count = int(options.get("count", "16"))
        self.timeout_s = float(options.get("timeout", "30"))
        self.sent: dict[str, str] = {}
        self._clients: list[Any] = []
        self._producer: Any = None

    @property
    def producer(self) -> Any:
        if self._producer is None:
            self._producer = Producer(f"{self.group}-producer", timeout=10_000)
            self._producer.set_namesrv_addr(self.nameserver)
            self._producer.start()
        return self._producer

    def message(self, kind: str, number: int, topic: str = "") -> Any:
        body, tag = f"{kind}-{number}", ("TagA", "TagB")[number % 2]
        if not topic:
            self.sent[body] = tag
        made = Message(topic or self.topic)
        made.set_keys(f"key-{body}")
        made.set_tags(tag)
        made.set_body(body)
        return made

    def consume(
        self,
        name: str,
        topic: str,
        expression: str = "*",
        **options: Any,
    ) -> Seen:
        seen = Seen()
        consumer = PushConsumer(f"{self.group}-{name}", **options)
        consumer.set_namesrv_addr(self.nameserver)
        consumer.set_instance_name(f"{name}-{len(self._clients)}")
        consumer.subscribe(topic, seen.add, expression)
        consumer.start()
        self._clients.append(consumer)  # ends with the process
        return seen

    # --- scenarios ----------------------------------------------------------------------------

    def sync_send(self) -> Facts:
        for number in range(self.count):
            result = self.producer.send_sync(self.message("sync-send", number))
            assert result.status == SendStatus.OK, result
        return {"sent": self.count}

    def async_send(self) -> Facts:
        results: list[Any] = []
        grown = threading.Condition()

        def note(result: Any) -> None:
            with grown:
                results.append(result)
                grown.notify_all()

        for number in range(self.count):
            self.producer.send_async(self.message("async-send", number), note, note)
        with grown:
            grown.wait_for(lambda: len(results) == self.count, self.timeout_s)
        good = [one for one in results if getattr(one, "status", None) == SendStatus.OK]
        assert len(good) == self.count, results
        return {"sent": self.count}

    def oneway_send(self) -> Facts:
        for number in range(self.count):
            self.producer.send_oneway(self.message("oneway-send", number))
        return {"sent": self.count}

    def push_consume(self) -> Facts:
        return self.consume("push", self.topic).compare(self.sent, self.timeout_s)

    def tag_filter(self) -> Facts:
        wanted = [body for body, tag in self.sent.items() if tag == "TagA"]
        return self.consume("tag", self.topic, "TagA || TagC").compare(wanted, self.timeout_s)

    def orderly(self) -> Facts:
        topic = f"{self.topic}-ordered"
        expected = []
        for number in range(self.count):
            key = f"key{number % 3}"
            self.producer.send_orderly(self.message(key, number, topic), number % 3)
            expected.append(f"{key}-{number}")
        seen = self.consume("ordered", topic, orderly=True)
        facts = seen.compare(expected, self.timeout_s)
        for key in ("key0", "key1", "key2"):
            numbers = [int(body[5:]) for body in seen.bodies if body.startswith(key)]
            assert numbers == sorted(numbers), (key, numbers)
        return facts

    def broadcasting(self) -> Facts:
        """Each member gets what comes after it has begun, which it does at the end of a queue."""
        topic, options = f"{self.topic}-broadcast", {"message_model": MessageModel.BROADCASTING}
        self.producer.send_sync(self.message("probe", 0, topic))
        both = [self.consume("broadcast", topic, **options) for _ in range(2)]
        deadline = time.monotonic() + self.timeout_s
        number = 1
        while any(len(seen.queues) < QUEUES for seen in both) and time.monotonic() < deadline:
            self.producer.send_sync(self.message("probe", number, topic))
            number += 1
            with both[0].grown:
                both[0].grown.wait(0.05)
        sent = [f"broadcast-{number}" for number in range(self.count)]
        for number in range(self.count):
            self.producer.send_sync(self.message("broadcast", number, topic))
        facts = [seen.compare(sent, self.timeout_s, ignored="probe-") for seen in both]
        return facts[1] if not facts[0]["missing"] else facts[0]

    def delay_level(self) -> Facts:
        topic = f"{self.topic}-delayed"
        message = self.message("later", 0, topic)
        message.set_delay_time_level(1)
        begin = time.monotonic()
        self.producer.send_sync(message)
        facts = self.consume("delayed", topic).compare(["later-0"], self.timeout_s)
        after = time.monotonic() - begin
        assert after > 0.95, f"delivered after {after:.3f} s"
        return facts

    def pull(self) -> Facts:
        seen = Seen()
        consumer = PullConsumer(f"{self.group}-pull")
        consumer.set_namesrv_addr(self.nameserver)
        consumer.start()
        for message in consumer.pull(self.topic):
            seen.add(message)
        return seen.compare(self.sent, 0)

    def run(self, name: str) -> bool:
        begin = time.monotonic()
        line: Facts = {"scenario": name}
        try:
            scenario: Callable[[], Facts] = getattr(self, name.replace("-", "_"))
            line |= scenario()
            line["ok"] = not line.get("missing") and not line.get("unexpected")
        except Exception:
            line |= {"ok": False, "error": traceback.format_exc()}
        line["ms"] = round((time.monotonic() - begin) * 1000)
        print(json.dumps(line), flush=True)
        return bool(line["ok"])


def main() -> None:
    options = dict(one.split("=", 1) for one in sys.argv[1:] if "=" in one)
    names = [one for one in sys.argv[1:] if "=" not in one]
    one = Round(options)
    failed = [name for name in names if not one.run(name)]
    verdict = "fail" if failed else "pass"
    print(json.dumps({"verdict": verdict, "scenarios": len(names), "failed": failed}), flush=True)
    os._exit(1 if failed else 0)  # the client's threads do not end by themselves


main()
