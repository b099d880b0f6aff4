"""Clicks to try the pipeline with: three people, a robot, and one who comes back later."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

from firearrow import Message, Producer

BEGIN = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
# Who clicked, minutes after the beginning, on which page.
CLICKS = (
    ("ann", 0, "/"), ("ann", 2, "/shoes"), ("ann", 9, "/cart"), ("ann", 12, "/thanks"),
    ("ben", 1, "/"), ("ben", 30, "/"), ("ben", 31, "/shirts"),
    ("cem", 5, "/help"),
    ("bot-7", 5, "/"), ("bot-7", 6, "/shoes"),
    ("ann", 90, "/"),
)  # fmt: skip


def main() -> None:
    nameservers = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
    with Producer("web-shop", nameservers=nameservers) as producer:
        for user, minutes, page in CLICKS:
            at = BEGIN + timedelta(minutes=minutes)
            click = json.dumps({"user": user, "page": page, "at": at.isoformat()})
            producer.send(Message("clicks", click, keys=user, sharding_key=user))
    print(f"{len(CLICKS)} clicks sent")


if __name__ == "__main__":
    main()
