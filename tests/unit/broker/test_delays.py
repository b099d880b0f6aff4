from __future__ import annotations

from firearrow.broker.delays import delivered_since
from firearrow.hot.layout import ScannedRecord
from firearrow.model.topic import HALF_TOPIC, SCHEDULE_TOPIC

MOVED = "REAL_TOPIC\x01orders\x02REAL_QID\x010\x02DELAY\x013\x02"


def record(topic: str, properties: str = MOVED) -> ScannedRecord:
    return ScannedRecord(0, 100, topic, 0, 0, 0, 0, 0, 0, 0, properties)


def test_messages_that_still_wait_do_not_count_as_delivered() -> None:
    records = [record(SCHEDULE_TOPIC), record(HALF_TOPIC), record("orders", "DELAY\x013\x02")]
    assert delivered_since(records) == {}
    assert delivered_since([*records, record("orders")]) == {3: 1}
