"""Dead letters to try the pipeline with: a consumer that cannot handle some of its orders."""

from __future__ import annotations

import json
import os
import queue

from firearrow import Message, Producer, PushConsumer, ReceivedMessage

ORDERS = (
    {"id": 1, "amount": 20.0, "bank": "north"},
    {"id": 2, "amount": 35.0, "bank": "south"},  # this bank is away today
    {"id": 3, "amount": -5.0, "bank": "north"},
    {"id": 4, "amount": 12.0, "bank": "south"},
)
PATIENCE_S = 30


def main() -> None:
    nameservers = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
    with Producer("shop", nameservers=nameservers) as producer:
        for order in ORDERS:
            text = json.dumps(order)
            producer.send(Message("paid-orders", text, tags="paid", keys=f"order-{order['id']}"))
        producer.send(Message("paid-orders", "{no order}", keys="order-5"))
    done: queue.Queue[str] = queue.Queue()

    def bill(message: ReceivedMessage) -> None:
        done.put(message.text)
        order = json.loads(message.text)
        if order["amount"] <= 0 or order["bank"] == "south":
            raise ValueError(f"order {order['id']} cannot be billed")

    # No second try: what fails is a dead letter at once.
    consumer = PushConsumer("billing", nameservers=nameservers, max_reconsume_times=0)
    consumer.subscribe("paid-orders", "*", bill)
    with consumer:
        for _ in range(len(ORDERS) + 1):
            done.get(timeout=PATIENCE_S)
    print("4 of 5 orders are dead letters")


if __name__ == "__main__":
    main()
