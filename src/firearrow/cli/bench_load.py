"""Load for `firearrow bench`: messages sent and consumed, how long it took, what limited it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from firearrow.client.message import Message
from firearrow.client.producer import Producer
from firearrow.client.pull_consumer import PullConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.client.options import ClientOptions

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
BUSY: Final = 0.85  # of a core: from here on the client itself is the limit
POLL_MS: Final = 500
QUIET_POLLS: Final = 20  # without a message: nothing more will come


@dataclass(slots=True)
class Outcome:
    """What a run came to; times in milliseconds."""

    messages: int = 0
    failed: int = 0
    body_bytes: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    in_flight: int = 1
    latencies_ms: list[float] = field(default_factory=list)
    first_error: str | None = None

    @property
    def per_second(self) -> float:
        return self.messages / self.wall_s if self.wall_s else 0.0

    @property
    def cpu_share(self) -> float:
        """How busy this process was, in cores."""
        return self.cpu_s / self.wall_s if self.wall_s else 0.0

    def percentile(self, share: float) -> float | None:
        """A latency that so many percent of the messages did not exceed."""
        if not self.latencies_ms:
            return None
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    topic: str
    count: int
    size: int = 1024
    in_flight: int = 64
    per_second: float | None = None  # as fast as it goes


async def send(
    load: Load, nameservers: str, options: ClientOptions, tick: Callable[[int], None]
) -> Outcome:
    """Send so many messages, so many at once."""
    outcome = Outcome(in_flight=load.in_flight)
    body = bytes(range(256)) * (load.size // 256 + 1)
    body = body[: load.size]
    left = iter(range(load.count))
    start = time.perf_counter()

    async def worker(producer: Producer) -> None:
        for number in left:
            if load.per_second:
                await asyncio.sleep(start + number / load.per_second - time.perf_counter())
            began = time.perf_counter()
            try:
                receipt = await producer.send(Message(load.topic, body))
            except Exception as error:
                outcome.failed += 1
                outcome.first_error = outcome.first_error or str(error)
                continue
            outcome.latencies_ms.append(1000 * (time.perf_counter() - began))
            outcome.messages += 1
            outcome.body_bytes += load.size
            outcome.failed += not receipt.ok
            tick(1)

    async with Producer("firearrow-bench", nameservers=nameservers, client=options) as producer:
        cpu = time.process_time()
        start = time.perf_counter()
        await asyncio.gather(*(worker(producer) for _ in range(min(load.in_flight, load.count))))
        outcome.wall_s = time.perf_counter() - start
        outcome.cpu_s = time.process_time() - cpu
    return outcome


async def consume(
    load: Load, nameservers: str, options: ClientOptions, tick: Callable[[int], None]
) -> Outcome:
    """Read so many messages from the beginning of a topic; latency is that of a poll."""
    outcome = Outcome(in_flight=1)
    async with PullConsumer(
        "TOOLS_CONSUMER", nameservers=nameservers, auto_commit=False, client=options
    ) as consumer:
        queues = await consumer.queues(load.topic)
        outcome.in_flight = 0  # nothing is sent
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_beginning(queue)
        cpu, start, quiet = time.process_time(), time.perf_counter(), 0
        last = start
        while outcome.messages < load.count and quiet < QUIET_POLLS:
            began = time.perf_counter()
            messages = await consumer.poll(POLL_MS)
            if not messages:
                quiet += 1
                continue
            quiet, last = 0, time.perf_counter()
            outcome.latencies_ms.append(1000 * (last - began))
            outcome.messages += len(messages)
            outcome.body_bytes += sum(len(one.body) for one in messages)
            tick(len(messages))
        outcome.wall_s = last - start
        outcome.cpu_s = time.process_time() - cpu
    return outcome


def hint(outcome: Outcome, settings: dict[str, str], *, paced: bool = False) -> str:
    """What limited a run, and what would make it faster."""
    if outcome.failed and outcome.first_error:
        return f"{outcome.failed} sends failed: {outcome.first_error}"
    half = outcome.percentile(50)
    limit = "the broker or the network: look at its CPU (firearrow cluster ls --watch)"
    if paced:
        limit = "the rate was given; leave --rate out to see the limit"
    elif outcome.cpu_share >= BUSY:
        limit = (
            f"this client: it kept {outcome.cpu_share:.2f} cores busy. Run several at once to see "
            "what the broker can do"
        )
    elif outcome.in_flight == 0:
        limit = "the broker or the network: more consumers would share the queues"
    elif outcome.in_flight == 1 and half is not None:
        limit = f"waiting: one message at a time takes {half:.2f} ms. Raise --in-flight"
    elif settings.get("flushDiskType", "").upper() == "SYNC_FLUSH":
        limit = (
            "the broker, which waits for its disk before it answers (flushDiskType=SYNC_FLUSH): "
            "more --in-flight share one wait"
        )
    return limit
