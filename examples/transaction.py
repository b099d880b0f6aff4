"""An order and its message: both, or neither. The database is SQLite, in memory."""

from __future__ import annotations

import sqlite3
import threading

from firearrow import Message, ReceivedMessage, TransactionProducer, TransactionState

database = sqlite3.connect(":memory:", check_same_thread=False)
database.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, amount INTEGER CHECK (amount > 0))")
guard = threading.Lock()


def number_of(message: Message) -> str:
    return message.keys[0]


def write_order(message: Message) -> TransactionState:
    """The local transaction. The message is stored already, but nobody sees it yet."""
    try:
        with guard, database:
            order = (number_of(message), int(message.text))
            database.execute("INSERT INTO orders VALUES (?, ?)", order)
    except sqlite3.IntegrityError:
        return TransactionState.ROLLBACK
    return TransactionState.COMMIT


def was_written(message: ReceivedMessage) -> TransactionState:
    """The broker never heard how it ended (this program crashed, say) and asks."""
    with guard:
        order = (number_of(message),)
        found = database.execute("SELECT 1 FROM orders WHERE number = ?", order).fetchone()
    return TransactionState.COMMIT if found else TransactionState.ROLLBACK


def main() -> None:
    with TransactionProducer("example-orders", check=was_written) as producer:
        for number, amount in (("1", "120"), ("2", "-5")):
            outcome = producer.send_in_transaction(
                Message("new-orders", amount, keys=number), write_order
            )
            print(f"order {number}: {outcome.state.name.lower()}")


if __name__ == "__main__":
    main()
