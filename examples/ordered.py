"""Three orders, each with its steps in order, though one step fails at first."""

from __future__ import annotations

import threading

from firearrow import Message, Producer, PushConsumer, ReceivedMessage, Retry

ORDERS = ("A", "B", "C")
STEPS = ("created", "paid", "shipped")
done = threading.Event()
seen: dict[str, list[str]] = {order: [] for order in ORDERS}


def on_step(message: ReceivedMessage) -> None:
    order = message.sharding_key or ""
    if message.text == "paid" and order == "B" and message.reconsume_times == 0:
        print("B: the payment is not there yet; nothing overtakes it")
        raise Retry("not there yet", after_ms=100)
    seen[order].append(message.text)
    if all(len(steps) == len(STEPS) for steps in seen.values()):
        done.set()


def main() -> None:
    with Producer("example-orders") as producer:
        for step in STEPS:
            for order in ORDERS:
                producer.send(Message("order-steps", step, sharding_key=order))
    consumer = PushConsumer("example-warehouse", ordered=True)
    consumer.subscribe("order-steps", "*", on_step)
    with consumer:
        done.wait(30)
    for order, steps in seen.items():
        print(f"{order}: {' → '.join(steps)}")


if __name__ == "__main__":
    main()
