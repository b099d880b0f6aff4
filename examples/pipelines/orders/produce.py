"""Orders to try the pipeline with: `python produce.py`, and then `python produce.py late`."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta

from firearrow import Message, Producer

BEGIN = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)
CATEGORIES = ("books", "games", "tools")


def order(number: int, at: datetime) -> Message:
    content = {
        "id": number,
        "category": CATEGORIES[number % 3],
        "amount": 10.0 + number % 7,
        "at": at.isoformat(),
    }
    return Message("shop-orders", json.dumps(content), keys=f"order-{number}")


def on_time() -> list[Message]:
    """Forty minutes, an order every ten seconds; and one that nobody can count."""
    orders = [order(number, BEGIN + timedelta(seconds=10 * number)) for number in range(240)]
    return [*orders, Message("shop-orders", "not an order")]


def late() -> list[Message]:
    """Three that are late but not too late, and three that are."""
    open_still = [order(1000 + n, BEGIN + timedelta(minutes=33, seconds=n)) for n in range(3)]
    closed = [order(2000 + n, BEGIN + timedelta(minutes=3, seconds=n)) for n in range(3)]
    return open_still + closed


def main() -> None:
    messages = late() if "late" in sys.argv[1:] else on_time()
    nameservers = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
    with Producer("shop", nameservers=nameservers) as producer:
        for message in messages:
            producer.send(message)
    print(f"{len(messages)} orders sent")


if __name__ == "__main__":
    main()
