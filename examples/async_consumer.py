"""Looks up a hundred addresses on one event loop: async handlers that wait beside each other."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from firearrow.aio import Message, Producer, PushConsumer, ReceivedMessage

COUNT = 100


async def main() -> None:
    found = 0
    stop = asyncio.Event()
    with contextlib.suppress(NotImplementedError):  # Windows has no signals on the loop
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async with Producer("example-customers") as producer:
        sends = [producer.send(Message("addresses", f"customer {n}")) for n in range(COUNT)]
        receipts = await asyncio.gather(*sends)
        print(f"{sum(receipt.ok for receipt in receipts)} questions are sent")

    consumer = PushConsumer("example-addresses", workers_max=50)

    @consumer.subscribe("addresses")
    async def on_customer(message: ReceivedMessage) -> None:
        """Up to fifty of these wait at the same time; none of them holds up a heartbeat."""
        nonlocal found
        await asyncio.sleep(0.05)  # a database, or another service
        found += 1
        if found == COUNT:
            print(f"{message.text} was the last of {COUNT}")
            stop.set()

    async with consumer:
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
