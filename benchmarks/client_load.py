"""A load on our client, the twin of `tests/interop/java/Load.java`: a program of its own.

Each line of input is one piece of work, answered by one line of JSON:

    send-aio 512 5 1024       work, how many tasks or threads, seconds, bytes of a body
    consume-push 300000 1 0   work, how many messages are there, how many in a call of the handler

Interpreter and client stay as they are from one to the next.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from firearrow import ConsumeFromWhere, Message, Producer, PullConsumer, aio
from firearrow.cli.running import loop_factory

if TYPE_CHECKING:
    from collections.abc import Coroutine

BATCH: Final = 32
TIMEOUT_MS: Final = 20_000
LATENCIES_MAX: Final = 100_000
CONSUME_LIMIT_S: Final = 60.0
FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
# As in Load.java: pulling never pauses, and compression is not what is measured.
SETTINGS: Final = aio.ConsumerSettings(
    consume_from_where=FIRST, limits=aio.WindowLimits(messages_max=20_000)
)
NEVER_COMPRESS: Final = 1 << 24


@dataclasses.dataclass(slots=True)
class Tally:
    """How much is to be done, and what was."""

    seconds: float = 0.0
    count: int = 0  # if this is given, it says when to stop
    messages: int = 0
    begun: int = 0
    failed: int = 0
    latencies: list[float] = dataclasses.field(default_factory=list)
    started: float = dataclasses.field(default_factory=time.perf_counter)
    spent_s: float = 0.0

    def more(self, messages: int = 1) -> bool:
        """Whether another call is to be made."""
        if self.count:
            self.begun += messages
            return self.begun <= self.count
        return time.perf_counter() - self.started < self.seconds

    def done(self, began: float, messages: int = 1) -> None:
        self.messages += messages
        if len(self.latencies) < LATENCIES_MAX:
            self.latencies.append(time.perf_counter() - began)

    def facts(self) -> dict[str, Any]:
        spent_s = self.spent_s or time.perf_counter() - self.started
        latencies = sorted(self.latencies) or [0.0]
        return {
            "messages": self.messages,
            "failed": self.failed,
            "seconds": spent_s,
            "per_second": int(self.messages / spent_s),
            "p50_ms": latencies[len(latencies) // 2] * 1e3,
            "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
        }


class Load:
    """The works, by the name of the client that does them."""

    def __init__(self, nameservers: str, topic: str) -> None:
        self.nameservers = nameservers
        self.topic = topic
        self._groups = 0

    def _group(self, kind: str) -> str:
        self._groups += 1
        return f"{kind}-{self._groups}-{time.time_ns()}"

    def _messages(self, body: bytes) -> list[Message]:
        return [Message(self.topic, body) for _ in range(BATCH)]

    # --- sending, on asyncio ----------------------------------------------------------------

    async def send_aio(self, tally: Tally, tasks: int, body: bytes, *, batch: bool = False) -> None:
        async with aio.Producer(
            "load",
            nameservers=self.nameservers,
            timeout_ms=TIMEOUT_MS,
            compress_over_bytes=NEVER_COMPRESS,
        ) as producer:

            async def one_by_one() -> None:
                while tally.more():
                    began = time.perf_counter()
                    await producer.send(Message(self.topic, body))
                    tally.done(began)

            async def batches() -> None:
                while tally.more(BATCH):
                    began = time.perf_counter()
                    await producer.send_batch(self._messages(body))
                    tally.done(began, BATCH)

            await asyncio.gather(*(batches() if batch else one_by_one() for _ in range(tasks)))

    # --- sending, from threads --------------------------------------------------------------

    def send_blocking(
        self, tally: Tally, threads: int, body: bytes, *, batch: bool = False
    ) -> None:
        guard = threading.Lock()

        def work(producer: Producer) -> None:
            size = BATCH if batch else 1
            while True:
                with guard:
                    if not tally.more(size):
                        return
                began = time.perf_counter()
                if batch:
                    producer.send_batch(self._messages(body))
                else:
                    producer.send(Message(self.topic, body))
                with guard:
                    tally.done(began, size)

        with Producer(
            "load",
            nameservers=self.nameservers,
            timeout_ms=TIMEOUT_MS,
            compress_over_bytes=NEVER_COMPRESS,
        ) as producer:
            workers = [threading.Thread(target=work, args=(producer,)) for _ in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

    # --- consuming what is there, as a new group --------------------------------------------

    async def consume_push(self, tally: Tally, batch: int) -> None:
        """Plain functions as handlers: they run in threads."""

        def one(_: aio.ReceivedMessage) -> None:
            self._count(tally, 1)

        def several(messages: list[aio.ReceivedMessage]) -> None:
            self._count(tally, len(messages))

        consumer = aio.PushConsumer(
            self._group("push"), nameservers=self.nameservers, settings=SETTINGS
        )
        if batch > 1:
            consumer.subscribe(self.topic, handler=several, batch=batch)
        else:
            consumer.subscribe(self.topic, handler=one)
        await self._consume(tally, consumer)

    async def consume_async(self, tally: Tally) -> None:
        """Coroutine functions as handlers: they run on the loop."""

        async def one(_: aio.ReceivedMessage) -> None:
            self._count(tally, 1)

        consumer = aio.PushConsumer(
            self._group("async"), nameservers=self.nameservers, settings=SETTINGS
        )
        consumer.subscribe(self.topic, handler=one)
        await self._consume(tally, consumer)

    @staticmethod
    def _count(tally: Tally, messages: int) -> None:
        if not tally.messages:
            tally.started = time.perf_counter()
        tally.messages += messages  # one worker, or the loop; with more the count is a little low

    @staticmethod
    async def _consume(tally: Tally, consumer: aio.PushConsumer) -> None:
        limit = time.monotonic() + CONSUME_LIMIT_S
        async with consumer:
            # As in Load.java; an event would cost the handlers something.
            while tally.messages < tally.count and time.monotonic() < limit:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            tally.spent_s = time.perf_counter() - tally.started
        tally.failed = max(0, tally.count - tally.messages)

    async def consume_pull_aio(self, tally: Tally) -> None:
        async with aio.PullConsumer(
            self._group("pull"), nameservers=self.nameservers, consume_from_where=FIRST
        ) as reader:
            reader.subscribe(self.topic)
            while tally.messages < tally.count:
                self._count(tally, len(await reader.poll()))
            tally.spent_s = time.perf_counter() - tally.started

    def consume_pull_blocking(self, tally: Tally) -> None:
        with PullConsumer(
            self._group("pull"), nameservers=self.nameservers, consume_from_where=FIRST
        ) as reader:
            reader.subscribe(self.topic)
            while tally.messages < tally.count:
                self._count(tally, len(reader.poll()))
            tally.spent_s = time.perf_counter() - tally.started


def run_async(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work)


def run_work(load: Load, words: list[str]) -> dict[str, Any]:
    """Do what one line says."""
    name, width, amount, size = words[0], int(words[1]), float(words[2]), int(words[3])
    kind, _, client = name.partition("-")
    body = b"x" * size
    tally = Tally(count=width) if kind == "consume" else Tally(seconds=amount)
    if kind in {"send", "batch"} and client == "aio":
        run_async(load.send_aio(tally, width, body, batch=kind == "batch"))
    elif kind in {"send", "batch"} and client == "blocking":
        load.send_blocking(tally, width, body, batch=kind == "batch")
    elif client == "push":
        run_async(load.consume_push(tally, int(amount)))
    elif client == "async":
        run_async(load.consume_async(tally))
    elif client == "pullaio":
        run_async(load.consume_pull_aio(tally))
    elif client == "pull":
        load.consume_pull_blocking(tally)
    else:
        raise SystemExit(f"unknown work: {name}")
    return tally.facts()


def main() -> None:
    load = Load(sys.argv[1], sys.argv[2])
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "end":
            break
        print(json.dumps(run_work(load, words)), flush=True)


if __name__ == "__main__":
    main()
