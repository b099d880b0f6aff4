"""Sends ten orders one by one, then a hundred at once, to the cluster of NAMESRV_ADDR."""

from __future__ import annotations

from firearrow import Message, Producer


def main() -> None:
    with Producer("example-orders") as producer:
        for number in range(10):
            tag = "paid" if number % 2 else "open"
            receipt = producer.send(
                Message("orders", f"order {number}", tags=tag, keys=f"order-{number}")
            )
            place = f"queue {receipt.queue.queue_id}, offset {receipt.queue_offset}"
            print(f"order {number} is {receipt.status}: {place}")

        # Nobody waits here: the sends are under way at the same time.
        futures = [
            producer.send_soon(Message("orders", f"order {number}", tags="bulk"))
            for number in range(10, 110)
        ]
        stored = sum(future.result().ok for future in futures)
        print(f"{stored} more are stored")


if __name__ == "__main__":
    main()
