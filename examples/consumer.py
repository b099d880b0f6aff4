"""Consumes the orders of producer.py until Ctrl-C or SIGTERM. Start it twice: the two share."""

from __future__ import annotations

import logging

from firearrow import PushConsumer, ReceivedMessage

consumer = PushConsumer("example-billing")


@consumer.subscribe("orders", "paid || open")
def on_order(message: ReceivedMessage) -> None:
    """Called in a thread. An exception means: again, later."""
    if message.tags == "open" and message.reconsume_times == 0:
        raise ValueError(f"{message.text} is not paid yet")
    # One write: handlers run beside each other, and `print` would write the line's end by itself.
    print(f"billed {message.text} after {message.reconsume_times} retries\n", end="", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    consumer.run()
